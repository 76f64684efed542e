from pathlib import Path

import pytest

from penstock.model.errors import FileProblem, UnknownName
from penstock.runtime.config import Execution, RunConfig, Telemetry
from penstock.startup.config_file import load_config


def test_a_file_holds_settings_and_its_errors_name_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[telemetry]\nsample_tps = "all"\n[execution]\numask = 0o027\n[limits]\nlines = 5\n')
    assert load_config(path) == RunConfig(
        telemetry=Telemetry(sample_tps=-1.0), execution=Execution(umask=0o027), limits={"lines": 5.0}
    )
    path.write_text("[execution]\nslot = 3\n")
    with pytest.raises(UnknownName, match=r"run.toml: execution.slot: unknown field; did you mean slots\?"):
        load_config(path)
    with pytest.raises(FileProblem, match="cannot be read"):
        load_config(tmp_path / "none.toml")
