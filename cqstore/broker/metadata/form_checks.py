"""Checks of metadata without queues: forms against each other, versions, names and counts.

Source: RocketMQ ``RocksDBTopicConfigManager.merge`` and its siblings (a file is merged if its
counter is higher), ``ConsumerOffsetManager`` (splits keys at each @), ``AdminBrokerProcessor``
(pages of 2000 names), ``ConsumerOffsetManagerV2.assignResetOffset``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from cqstore.broker.metadata.findings import MetadataSeverity, MetaFinding
from cqstore.broker.metadata.json_form import offsets_disagree
from cqstore.broker.metadata.model import (
    FIELDS_OF_TABLE,
    REMARKS,
    BrokerMetadata,
    Form,
    Table,
)
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.broker.metadata.writing import differences_in
from cqstore.store.broker_files.file_names import (
    LMQ_OFFSETS_FILE,
    OFFSETS_FILE,
    TOPIC_GROUP_SEPARATOR,
)
from cqstore.store.record.topic_names import is_exempt

_PAGE = 2000
_TAKEN_IN = {Form.JSON: (Form.V1, Form.SINGLE), Form.V1: (Form.SINGLE,)}
"""Form → the forms whose managers merge it if its counter is higher."""


def check_forms(found: Sequence[BrokerMetadata]) -> Iterator[MetaFinding]:
    """Yield the findings about the forms of one folder; queues are not needed."""
    for one, other in combinations(map(made_by_operators, found), 2):
        yield from _disagreements(one, other)
    for each in found:
        yield from _damage(each)
        yield from _remarks(each)
        yield from _counters_of_zero(each)
        yield from _names_and_keys(each)
        yield from _ambiguous(each)
        yield from _lost_resets(each)
        yield from _lost_by_a_slave(each)
        yield from _files_of_offsets(each)


def made_by_operators(found: BrokerMetadata) -> BrokerMetadata:
    """Return ``found`` without the topics that a broker creates at each start."""
    topics = {name: config for name, config in found.topics.items() if not is_exempt(name)}
    return replace(found, topics=topics)


def _disagreements(one: BrokerMetadata, other: BrokerMetadata) -> Iterator[MetaFinding]:
    """Yield a finding for each table in which two forms differ."""
    forms = f"{one.form}, {other.form}"
    for table in Table:
        unlike = [
            sentence
            for name in FIELDS_OF_TABLE[table]
            if not _is_missing_by_form(name, one.form, other.form)
            for sentence in differences_in(name, getattr(one, name), getattr(other, name))
        ]
        if unlike:
            sentence = "The two forms differ, and a broker reads only one of them."
            finding = MetaFinding(forms, MetadataSeverity.WARN, f"{table}-disagree", sentence)
            yield finding.with_names(unlike)
            yield from _version_trap(one, other, table)


def _is_missing_by_form(name: str, *forms: Form) -> bool:
    """Return whether one of ``forms`` cannot store a table at all."""
    if name == "forbidden":
        return Form.V2 in forms
    return name == "pull_offsets" and set(forms) != {Form.V2}


def _version_trap(
    one: BrokerMetadata, other: BrokerMetadata, table: Table
) -> Iterator[MetaFinding]:
    """Yield a finding on which of two different forms a broker uses, by their data versions."""
    if other.form not in _TAKEN_IN.get(one.form, ()):
        return
    counters = [_counter(each, table) for each in (one, other)]
    if counters[0] > counters[1]:
        code = f"{table}-taken-in"
        sentence = (
            f"At its next start, a broker that uses {other.form} imports {one.form} over its own"
        )
        sentence += f" rows: the data version of {one.form} has the higher counter."
    else:
        code = f"{table}-passed-over"
        sentence = f"A broker that uses {other.form} never reads {one.form}: the data version of"
        sentence += f" {one.form} does not have a higher counter."
    finding = MetaFinding(f"{one.form}, {other.form}", MetadataSeverity.WARN, code, sentence)
    yield finding.with_names([f"counters {counters[0]} and {counters[1]}"])


def _counter(found: BrokerMetadata, table: Table) -> int:
    version = found.versions.get(table)
    return 0 if version is None else version.counter


def _damage(found: BrokerMetadata) -> Iterator[MetaFinding]:
    if found.faults:
        sentence = "Files or rows cannot be read; a broker does not start, or starts without them."
        finding = MetaFinding(found.form, MetadataSeverity.WARN, "damaged", sentence)
        yield finding.with_names(map(str, found.faults))


def _remarks(found: BrokerMetadata) -> Iterator[MetaFinding]:
    for kind, names in found.remarks.items():
        sentence = f"{REMARKS[kind][0].upper()}{REMARKS[kind][1:]}."
        yield MetaFinding(found.form, MetadataSeverity.INFO, kind, sentence).with_names(names)


def _counters_of_zero(found: BrokerMetadata) -> Iterator[MetaFinding]:
    """Yield a finding on JSON tables with counter 0, which a RocksDB broker never merges."""
    if found.form is not Form.JSON:
        return
    young = [
        table
        for table in Table
        if _counter(found, table) <= 0
        and any(getattr(found, name) for name in FIELDS_OF_TABLE[table])
    ]
    if young:
        sentence = (
            "The counter of the data version is not above 0: a broker with storeType=defaultRocksDB"
            " drops these tables. cqstore meta convert and cqstore migrate raise the counter."
        )
        yield MetaFinding(found.form, MetadataSeverity.INFO, "counter-zero", sentence).with_names(
            young
        )


def _names_and_keys(found: BrokerMetadata) -> Iterator[MetaFinding]:
    sentence = (
        "The name in the configuration differs from the key of its row: some forms use the name,"
        " others the key."
    )
    finding = MetaFinding(found.form, MetadataSeverity.WARN, "name-mismatch", sentence)
    for kind, table in (("topicName", found.topics), ("groupName", found.groups)):
        finding.with_names(name for name, config in table.items() if config.get(kind) != name)
    if finding.total:
        yield finding


def _ambiguous(found: BrokerMetadata) -> Iterator[MetaFinding]:
    """Yield findings on offset keys that match no topic and group, or more than one."""
    keys = [*found.offsets, *found.pull_offsets]
    ambiguous = MetaFinding(
        found.form, MetadataSeverity.WARN, "ambiguous-key",
        "The key of an offset is ambiguous: several topics and groups match it.",
    )  # fmt: skip
    no_key = MetaFinding(
        found.form,
        MetadataSeverity.WARN,
        "no-topic-at-group",
        "The key of an offset is not of the form topic@group.",
    )
    several = MetaFinding(
        found.form, MetadataSeverity.INFO, "name-with-separator",
        "Names contain '@': a broker does not remove these offsets with their topic or group.",
    )  # fmt: skip
    for key in keys:
        fitting = fitting_readings(key, found.topics, found.groups)
        if not fitting:
            no_key.add(key)
        elif len(fitting) > 1:
            ambiguous.add(key)
        elif key.count(TOPIC_GROUP_SEPARATOR) > 1:
            several.add(key)
    yield from (finding for finding in (ambiguous, no_key, several) if finding.total)


def _lost_resets(found: BrokerMetadata) -> Iterator[MetaFinding]:
    """Yield a finding on offset resets under version 2, written as ``group@topic``."""
    if found.form is not Form.V2:
        return
    finding = MetaFinding(
        found.form, MetadataSeverity.WARN, "reset-lost",
        "The broker reset an offset and wrote its key with topic and group swapped: after the next"
        " start, the group continues at its old offset unless it has committed since.",
    )  # fmt: skip
    for key in found.offsets:
        group, _, topic = key.partition(TOPIC_GROUP_SEPARATOR)
        if topic in found.topics and group in found.groups and group not in found.topics:
            finding.add(f"{topic}@{group}")
    if finding.total:
        yield finding


def _lost_by_a_slave(found: BrokerMetadata) -> Iterator[MetaFinding]:
    """Yield a finding on tables whose size makes a RocketMQ slave lose the last entry."""
    for table, names in ((Table.TOPICS, found.topics), (Table.GROUPS, found.groups)):
        if len(names) > _PAGE and len(names) % _PAGE == 1:
            sentence = (
                f"The number of {table} is a multiple of 2000 plus 1: a RocketMQ slave never"
                " receives the last one, and deletes it if it has it. Add or remove one."
            )
            code = f"{table}-2000k-plus-1"
            finding = MetaFinding(found.form, MetadataSeverity.WARN, code, sentence)
            yield finding.with_names([f"{len(names)} {table}"])


def _files_of_offsets(found: BrokerMetadata) -> Iterator[MetaFinding]:
    """Yield a finding if the two offset files differ."""
    keys = offsets_disagree(found.path) if found.form is Form.JSON else []
    if keys:
        sentence = (
            f"{OFFSETS_FILE} and {LMQ_OFFSETS_FILE} differ: a broker with enableLmq reads only the"
            " second, any other broker only the first."
        )
        finding = MetaFinding(found.form, MetadataSeverity.WARN, "lmq-offsets-disagree", sentence)
        yield finding.with_names(keys)
