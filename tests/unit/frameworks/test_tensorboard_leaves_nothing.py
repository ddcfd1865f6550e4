"""TensorBoard leaves no file in the temporary folder, however it ends."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from howdah.frameworks.helpers import tensorboard_main


def test_tensorboard_does_not_say_in_the_temporary_folder_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("", ".compat", ".backend", ".backend.application", ".main_lib", ".main", ".program")
    made = {f"tensorboard{name}": types.ModuleType(f"tensorboard{name}") for name in names}
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
        above, _, own = name.rpartition(".")
        if above:
            setattr(made[above], own, module)

    class TensorBoard:
        def _register_info(self, server: object) -> None:
            raise AssertionError("it would write .tensorboard-info, and leave it if it is killed")

    def run_main() -> int:
        TensorBoard()._register_info(None)
        return 0

    application, main_lib, main, program = (made[f"tensorboard{name}"] for name in names[3:])
    setattr(application, "TensorBoardWSGIApp", object)  # noqa: B010 - of modules made up here
    setattr(main_lib, "global_init", lambda: None)  # noqa: B010
    setattr(main, "run_main", run_main)  # noqa: B010
    setattr(program, "TensorBoard", TensorBoard)  # noqa: B010
    token = tmp_path / "token"
    token.write_text("secret")
    monkeypatch.setenv("HOWDAH_PAGE_TOKEN_FILE", str(token))
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", types.ModuleType("notf"))
    assert tensorboard_main.main() == 0
