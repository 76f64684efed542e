"""The location of the real data sets, for tests that use them; they are skipped if the data is absent."""

import pytest

from tests import ROOT

SHARED = ROOT.parent / "shared" / "data"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the data sets of ../shared/data are not here")
