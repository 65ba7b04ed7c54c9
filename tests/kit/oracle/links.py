"""What followers have, in plain Python: compared with ``replication.feed._links``."""


class OracleLink:
    """One connection."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.position = self.start = self.sent = self.acknowledged = -1


class OracleLinks:
    """All connections. One thread."""

    def __init__(self) -> None:
        self.links: list[OracleLink] = []

    def join(self, address: str) -> OracleLink:
        """Note a connection."""
        link = OracleLink(address)
        self.links.append(link)
        return link

    def begin(self, link: OracleLink, request: int, start: int) -> None:
        """Note where it begins."""
        link.position, link.start, link.sent = request, start, start

    def acknowledge(self, link: OracleLink, phy_offset: int) -> None:
        """Note what it has; up to where it began it says nothing of what it was sent."""
        link.position = phy_offset
        if phy_offset > link.start:
            link.acknowledged = phy_offset

    def reached(self, followers: int) -> int:
        """Return up to where so many addresses have the log."""
        having = {link.address: -1 for link in self.links}
        for link in self.links:
            having[link.address] = max(having[link.address], link.acknowledged)
        return sorted(having.values())[-followers] if len(having) >= followers else -1

    def in_sync(self, phy_offset: int, gap: int) -> int:
        """Return how many addresses lack less than ``gap`` bytes."""
        near = [link for link in self.links if 0 <= link.position > phy_offset - gap]
        return len({link.address for link in near})
