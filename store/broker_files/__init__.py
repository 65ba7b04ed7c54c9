"""Files that a broker keeps beside its log: names, JSON, and the topics in them."""
