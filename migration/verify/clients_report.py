"""The part of a report about clients that read both stores."""

from pydantic import Field, NonNegativeInt

from cqstore.store.comparing.tally import TallyModel

MAX_LISTED = 100
"""Differences that a report lists; all are counted."""
OWN_CLIENT = "cqstore's client of the remoting protocol"


class ClientDifference(TallyModel):
    """One request that the two stores answered differently; the queue was not read further."""

    topic: str
    queue_id: int
    request: str = Field(description="RocketMQ's name of the request.")
    offset: int | None = Field(None, description="Queue offset of a pull.")
    field: str = Field(description="What differs: code, body, or the name of a field.")
    source: str
    target: str


class CommandRun(TallyModel):
    """The runs of a client's command, one for each store."""

    command: str
    equal: bool
    source_exit: int = Field(description="Exit code at the source.")
    target_exit: int
    source_lines: NonNegativeInt
    target_lines: NonNegativeInt
    only_source: list[str] = Field(description="The first lines that only the source has.")
    only_target: list[str]


class ClientsReport(TallyModel):
    """What clients received from both stores over the remoting protocol."""

    client: str = Field(OWN_CLIENT, description="The client that read all queues.")
    queues: NonNegativeInt = 0
    messages: NonNegativeInt = Field(0, description="Messages that each store has returned.")
    bytes: NonNegativeInt = Field(0, description="Size of their records.")
    requests: NonNegativeInt = Field(0, description="Requests to each store.")
    refused: NonNegativeInt = Field(
        0, description="Requests that both stores refused, with equal words."
    )
    later: NonNegativeInt = Field(
        0, description="Messages of the source after the end of the plan; not compared."
    )
    differing: NonNegativeInt = Field(0, description="Queues with different responses.")
    listed: list[ClientDifference] = Field([], description="The first queues that differ.")
    command: CommandRun | None = Field(None, description="The client of --client-command.")

    @property
    def equal(self) -> bool:
        """Return whether no difference was found."""
        return not self.differing and (self.command is None or self.command.equal)
