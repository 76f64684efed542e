"""Where the real data sets are, for tests that check against them; they are skipped where the data is absent."""

import pytest

from tests import ROOT

SHARED = ROOT.parent / "shared" / "data"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the data sets of ../shared/data are not here")
