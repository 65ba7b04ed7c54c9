"""What an operator asks of a store at rest: lag of groups, usage of topics, messages that wait."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())
