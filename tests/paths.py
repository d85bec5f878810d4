"""Where the tests find things. A missing fixture is an error of the test that opens it, never a reason to skip."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
