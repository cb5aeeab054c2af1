"""The effective configuration in the file's own form, for `--check`."""

from __future__ import annotations

import yaml

from twisted_gateway.config.keys import ROOT
from twisted_gateway.config.kinds import is_string
from twisted_gateway.config.schema import Config


def dump(config: Config) -> str:
    """Give `config` as YAML, every value in force written out and secrets as `***`.

    Loading it without the environment gives an equal configuration, once the secrets are put in.
    """
    return yaml.dump(
        ROOT.plain(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000
    )


class _Dumper(yaml.SafeDumper):
    """Writes strings so that YAML 1.1 and 1.2 both read strings, and no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if is_string(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)
