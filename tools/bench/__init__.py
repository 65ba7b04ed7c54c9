"""Named workloads, each beside its raw baseline."""

import os

os.environ.setdefault("CQSTORE_BUS_HANDLER", "1")  # as in `cqstore`
