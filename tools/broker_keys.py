"""Make the table of the keys that a broker.conf may have, from the class files of all releases.

    .venv/bin/python -m tools.broker_keys [FOLDER]

``MixAll.properties2Object`` calls every public setter of the broker's config classes whose key is
in the file. So the setters of a release are its keys: Maven fetches the jars into FOLDER (kept, to
be used again), ``javap`` lists the setters, and the table goes to ``store/settings``. Releases are
in ascending order; a module that a release does not publish counts as in the release before it, or
after it where the sources have the same setters.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

TABLE = Path(__file__).parents[1] / "store" / "settings" / "broker_keys.json"
RELEASES = (
    *("4.0.0-incubating", "4.1.0-incubating", "4.2.0", "4.3.0", "4.3.1", "4.3.2", "4.4.0"),
    *("4.5.0", "4.5.1", "4.5.2", "4.6.0", "4.6.1", "4.7.0", "4.7.1", "4.8.0"),
    *("4.9.0", "4.9.1", "4.9.2", "4.9.3", "4.9.4", "4.9.5", "4.9.6", "4.9.7", "4.9.8"),
    *("5.0.0", "5.1.0", "5.1.1", "5.1.2", "5.1.3", "5.1.4", "5.2.0"),
    *("5.3.0", "5.3.1", "5.3.2", "5.3.3", "5.3.4", "5.4.0", "5.5.0", "5.5.1"),
)
_PACKAGE = "org.apache.rocketmq"
CLASSES = {
    "common": ("common.BrokerConfig",),
    "remoting": ("remoting.netty.NettyServerConfig", "remoting.netty.NettyClientConfig"),
    "store": ("store.config.MessageStoreConfig",),
    "tiered-store": (
        "tieredstore.common.TieredMessageStoreConfig",
        "tieredstore.MessageStoreConfig",
    ),
    "auth": ("auth.config.AuthConfig",),
}
"""Module → the classes that a broker, or the tiered store in it, fills from the file."""
READ_BY_NAME = ("rmqAddressServerDomain", "rmqAddressServerSubGroup")
"""Keys of every release that ``BrokerStartup.properties2SystemEnv`` reads, without a setter."""
COMMON_OF_5_3_4 = (
    *("enableConnectionMetrics", "enableLagAndDlqMetrics", "enableMessageStoreMetrics"),
    *("enablePopMetrics", "enableRemotingMetrics", "enableRequestMetrics", "enableSplitMetadata"),
    *("enableStatsMetrics", "enableTransactionMetrics", "popPollingMapExpireTimeSeconds"),
    *("splitMetadataSize", "useSingleRocksDBForAllConfigs"),
)
"""Keys of 5.3.4's BrokerConfig, whose module is not published: its broker's class files call
these."""
AS_NEXT = {("store", "5.1.2"), ("tiered-store", "5.1.2")}
"""Modules that are not published, whose setters in the sources are those of the next release."""
_KINDS = {
    "int": "int", "Integer": "int", "long": "long", "Long": "long", "double": "double",
    "Double": "double", "boolean": "boolean", "Boolean": "boolean", "String": "text",
    "float": "float", "Float": "float",
}  # fmt: skip
_SETTER = re.compile(r"public (?:final |synchronized )*void set(\w)(\w*)\(([\w.$]+)\)")
_HEAD = re.compile(r"public (?:final )?class ([\w.$]+)(?: extends ([\w.$]+))?")
_PARSED = re.compile(
    r"void set(\w)(\w*)\(java\.lang\.String\);\n +Code:\n(?:.*\n){0,3}?"
    r".*Method (org/apache/rocketmq/[\w/$]+)\.valueOf:\(Ljava/lang/String;\)"
)
"""A setter whose text is a constant of an enum."""
_CONSTANT = re.compile(r"public static final [\w.$]+ (\w+);")
_MODULE = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>{name}</artifactId>
<version>1</version><packaging>pom</packaging>{body}</project>"""
_COPY = """<build><plugins><plugin><groupId>org.apache.maven.plugins</groupId>
<artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version>
<executions><execution><phase>package</phase><goals><goal>copy</goal></goals></execution>
</executions><configuration><outputDirectory>{jars}</outputDirectory><artifactItems><artifactItem>
<groupId>{package}</groupId><artifactId>rocketmq-{module}</artifactId><version>{release}</version>
</artifactItem></artifactItems></configuration></plugin></plugins></build>"""

Setters = dict[str, tuple[str, tuple[str, ...]]]
"""Key → its kinds, joined by ``|``, and the constants of the enum that its text is one of."""


def fetch(folder: Path) -> Path:
    """Return the folder with the jars of all releases; what it lacks Maven fetches.

    A module that a release does not publish fails alone.
    """
    jars, modules = folder / "jars", list[str]()
    for release in RELEASES:
        for module in CLASSES:
            if (jars / _jar(module, release)).exists():
                continue
            name = f"{module}-{release}"
            copy = _COPY.format(jars=jars, package=_PACKAGE, module=module, release=release)
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "pom.xml").write_text(_MODULE.format(name=name, body=copy))
            modules.append(f"<module>{name}</module>")
    body = f"<modules>{''.join(modules)}</modules>"
    (folder / "pom.xml").write_text(_MODULE.format(name="all", body=body))
    subprocess.run(["mvn", "-q", "-B", "-fae", "package"], cwd=folder, check=False)
    return jars


def _jar(module: str, release: str) -> str:
    return f"rocketmq-{module}-{release}.jar"


def _shown(classpath: str, names: Iterable[str]) -> str:
    """Return the public members of classes; those that are not there are left out."""
    command = ["javap", "-public", "-c", "-cp", classpath, *names]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def setters(classpath: str, names: Iterable[str]) -> Setters:
    """Return the keys of classes: those of their superclasses are theirs."""
    kinds: dict[str, set[str]] = defaultdict(set)
    shown = _shown(classpath, [f"{_PACKAGE}.{name}" for name in names])
    above = {parent for _, parent in _HEAD.findall(shown) if parent.startswith(_PACKAGE)}
    if above:
        shown += _shown(classpath, sorted(above))
    for first, rest, kind in _SETTER.findall(shown):
        if known := _KINDS.get(kind.rpartition(".")[2]):
            kinds[first.lower() + rest].add(known)
    enums = {first.lower() + rest: enum for first, rest, enum in _PARSED.findall(shown)}
    constants = {
        enum: tuple(_CONSTANT.findall(_shown(classpath, [enum.replace("/", ".")])))
        for enum in enums.values()
    }
    return {
        key: ("|".join(sorted(each)), constants.get(enums.get(key, ""), ()))
        for key, each in kinds.items()
    }


def keys_of(jars: Path) -> list[tuple[str, Setters]]:
    """Return the keys of each release, in the order of ``RELEASES``."""
    last: dict[str, Setters] = {}
    found: list[tuple[str, Setters]] = []
    for release, following in zip_longest(RELEASES, RELEASES[1:]):
        source = {
            module: jars / _jar(module, following if (module, release) in AS_NEXT else release)
            for module in CLASSES
        }
        there = {module: path for module, path in source.items() if path.exists()}
        for module in there:
            last[module] = setters(":".join(map(str, there.values())), CLASSES[module])
        every: Setters = {}
        for each in last.values():
            for key, (kinds, names) in each.items():
                before = every.get(key, ("", ()))
                joined = {*kinds.split("|"), *filter(None, before[0].split("|"))}
                every[key] = "|".join(sorted(joined)), names or before[1]
        found.append((release, every))
    return found


def table(found: list[tuple[str, Setters]]) -> dict[str, object]:
    """Return the table: key → kinds, first release with it, first release without it."""
    rows: dict[str, list[str]] = {}
    names: dict[str, tuple[str, ...]] = {}
    for release, keys in found:
        number = release.partition("-")[0]
        there = keys.keys() | (COMMON_OF_5_3_4 if number == "5.3.4" else ())
        later = dict(found)["5.4.0"]
        for key in sorted(there):
            kinds, constants = keys.get(key) or later[key]
            row = rows.setdefault(key, [kinds, number])
            row[0] = kinds
            del row[2:]  # gone, and there again
            if constants:
                names[key] = constants
        for key, row in rows.items():
            if key not in there and len(row) == 2:  # noqa: PLR2004 - it has no end yet
                row.append(number)
    first = RELEASES[0].partition("-")[0]
    rows |= {key: ["text", first] for key in READ_BY_NAME}
    return {
        "source": "tools/broker_keys.py: public setters in the class files of each release",
        "releases": [release.partition("-")[0] for release in RELEASES],
        "names": dict(sorted(names.items())),
        "keys": dict(sorted(rows.items())),
    }


def written(made: dict[str, object]) -> str:
    """Return the table as text, a key a line."""
    keys = made["keys"]
    assert isinstance(keys, dict)
    rows = ",\n".join(f'  "{key}": {json.dumps(row)}' for key, row in keys.items())
    head = "".join(
        f' "{name}": {json.dumps(value)},\n' for name, value in made.items() if name != "keys"
    )
    return f'{{\n{head} "keys": {{\n{rows}\n }}\n}}\n'


def main() -> None:
    """Write the table."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch).absolute()
        TABLE.write_text(written(table(keys_of(fetch(folder)))), encoding="utf-8")


if __name__ == "__main__":
    main()
