# cython: language_level=3, boundscheck=False, wraparound=False
"""BatchColumns: adds a record's keys to the batch of keys that waits with a batch of units."""

from libc.stdint cimport int64_t

from cqstore.store.index._batch cimport KeyColumns, take_topic
from cqstore.store.queue._batch cimport UnitColumns
from cqstore.store.record._known cimport KnownKey, Value


cdef class BatchColumns:
    """The batches to which rows were added last; their owner may add other rows in between."""

    cdef BatchColumns of(self, UnitColumns units, KeyColumns keys):
        if self.units is not units or self.keys is not keys:
            self.units, self.keys = units, keys
            self.batch += 1
        return self

    cdef int add_record(
        self, object topic, const Value *uniq_key, const Value *words, const KnownKey *tags,
        int64_t phy_offset, int64_t timestamp,
    ) except -1:
        """Add a record's keys, see ``IndexBatch.add_record``.

        ``tags`` have their prefix; NULL: no tags.
        """
        cdef KeyColumns keys = self.keys
        if uniq_key.text == NULL and words.text == NULL and tags == NULL:
            return 0
        if topic is not self.topic:
            self.topic = None
            self.topic_held = take_topic(topic, &self.topic_found)
            self.topic = topic
        if uniq_key.text != NULL:
            keys.add_key(&self.topic_found, uniq_key.text, uniq_key.size, phy_offset, timestamp)
        if words.text != NULL:
            keys.add_words(&self.topic_found, words.text, words.size, phy_offset, timestamp)
        if tags != NULL:
            keys.add_hashed(
                &self.topic_found, tags.value.text, tags.value.size,
                self.topic_found.hashed * tags.power + tags.hashed, phy_offset, timestamp,
            )
        return 0
