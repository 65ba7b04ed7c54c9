"""Files that a broker keeps in addition to its log: names, JSON, and the topics in them."""
