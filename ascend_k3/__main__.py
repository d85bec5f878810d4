"""`python -m ascend_k3`: the same program as `ascend-k3`."""

import sys

from ascend_k3.cli import main

if __name__ == "__main__":
    sys.exit(main())
