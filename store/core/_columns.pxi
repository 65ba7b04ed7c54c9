# The batches of units and of keys that wait.

from store.index._batch cimport KeyColumns, Topic, take_topic
from store.queue._batch cimport UnitColumns


cdef struct Value:
    # The UTF-8 of a property or of a key; without text there is none.
    const char *text
    Py_ssize_t size


cdef struct KnownKey:
    # A key that comes again and again: `power` times the hash before it, and `hashed`, is its hash.
    Value value
    uint32_t power, hashed


cdef int take_value(PyObject *text, Value *found) except -1:
    """Find the bytes of a text that has no surrogate; NULL: there is none."""
    found.text, found.size = NULL, 0
    if text != NULL:
        found.text = PyUnicode_AsUTF8AndSize(<object> text, &found.size)
    return 0


cdef int take_key(PyObject *text, KnownKey *found) except -1:
    """Find the bytes of a text that has no surrogate, and what its hash is behind any other."""
    take_value(text, &found.value)
    found.hashed = hash_utf8(0, found.value.text, found.value.size)
    found.power = hash_utf8(1, found.value.text, found.value.size) - found.hashed
    return 0


cdef class _Columns:
    """The batches that rows were added to last; whoever has the batches may add others between."""

    cdef UnitColumns units
    cdef KeyColumns keys
    cdef int64_t batch  # counts the batches; the first is 1
    cdef object topic, topic_held  # of the keys that were added last, and what holds its bytes
    cdef Topic topic_found

    cdef _Columns of(self, UnitColumns units, KeyColumns keys):
        if self.units is not units or self.keys is not keys:
            self.units, self.keys = units, keys
            self.batch += 1
        return self

    cdef int add_record(
        self, object topic, const Value *uniq_key, const Value *words, const KnownKey *tags,
        int64_t phy_offset, int64_t timestamp,
    ) except -1:
        """Add a record's keys, see ``IndexBatch.add_record``.

        ``tags`` with what stands before, NULL: there are none.
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
