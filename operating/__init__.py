"""What an operator asks of a closed store: lag of groups, usage of topics, waiting messages."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())
