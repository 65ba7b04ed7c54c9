class HostWire:
    wire: bytes
