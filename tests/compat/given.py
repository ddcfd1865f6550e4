"""TonY jobs for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from howdah.compat.tony.conversion import Conversion
from howdah.compat.tony.convert import convert
from howdah.compat.tony.options import Arguments
from howdah.compat.tony.settings import Setting, Settings, SettingSource


def settings(values: Mapping[str, str], source: SettingSource = SettingSource.FILE) -> Settings:
    return Settings({key: Setting(text, source, "tony.xml") for key, text in values.items()})


def converted(values: Mapping[str, str], **given: Any) -> Conversion:
    return convert(settings(values), Arguments(**given))


def document(values: Mapping[str, str], **given: Any) -> dict[str, Any]:
    return converted(values, **given).document


def xml(values: Mapping[str, str], final: tuple[str, ...] = ()) -> str:
    """The text of such a configuration file."""
    properties = "".join(
        f"<property><name>{escape(key)}</name><value>{escape(text)}</value>"
        f"{'<final>true</final>' if key in final else ''}</property>\n"
        for key, text in values.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n'
