"""Making a store whole: recovery at every open, queues and index rebuilt, repair."""
