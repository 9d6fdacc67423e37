-- Statements of the savers' programs. The Postgres file has the same names, parameters and columns.

-- name: meta_get
-- One fact about the database.
SELECT value FROM refold_meta WHERE key = :key;

-- name: meta_put
-- Keep the first value of a fact.
INSERT INTO refold_meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING;

-- name: meta_hold
-- One fact about the database, held until the transaction ends (SQLite has one writer anyway).
SELECT value FROM refold_meta WHERE key = :key;

-- name: thread_lock
-- One transaction at a time gives a thread a new namespace, or deletes it (SQLite has one writer anyway).
SELECT :thread;

-- name: space_get
SELECT id, wide FROM refold_space WHERE thread = :thread AND ns = :ns;

-- name: space_add
INSERT INTO refold_space (thread, ns, wide) VALUES (:thread, :ns, :wide) ON CONFLICT (thread, ns) DO NOTHING;

-- name: space_lock
-- One writer at a time extends a space (SQLite has one writer anyway).
SELECT id, wide FROM refold_space WHERE id = :space;

-- name: checkpoint_hold
-- Hold a checkpoint's row while its writes change (SQLite has one writer anyway). No row: it is gone.
SELECT seq FROM refold_checkpoint WHERE seq = :seq;

-- name: checkpoints_hold_space
-- Hold all checkpoints of a space, so that no writes of tasks come to them (SQLite has one writer anyway).
SELECT seq FROM refold_checkpoint WHERE space = :space ORDER BY seq;

-- name: space_widen
UPDATE refold_space SET wide = 1 WHERE id = :space;

-- name: spaces_of_thread
SELECT id, thread, ns, wide FROM refold_space WHERE thread = :thread ORDER BY id;

-- name: spaces_all
SELECT id, thread, ns, wide FROM refold_space ORDER BY id;

-- name: threads_after
-- Threads in order of name, a page at a time.
SELECT DISTINCT thread FROM refold_space WHERE thread > :after ORDER BY thread LIMIT :count;

-- name: space_delete
DELETE FROM refold_space WHERE id = :space;

-- name: checkpoint_get
-- One checkpoint by id, hidden ones too.
SELECT c.seq, c.id, c.state, c.parent, c.run, c.template, c.data, p.id
FROM refold_checkpoint c LEFT JOIN refold_checkpoint p ON p.seq = c.parent
WHERE c.space = :space AND c.id = :id;

-- name: checkpoint_head
-- The newest listed checkpoint of a space.
SELECT c.seq, c.id, c.state, c.parent, c.run, c.template, c.data, p.id
FROM refold_checkpoint c LEFT JOIN refold_checkpoint p ON p.seq = c.parent
WHERE c.space = :space AND c.state = 0 ORDER BY c.id DESC LIMIT 1;

-- name: checkpoint_newest
-- The newest listed checkpoint of a (thread, namespace), behind its space.
SELECT s.id, s.wide, c.seq, c.id, c.state, c.parent, c.run, c.template, c.data, p.id
FROM refold_space s JOIN refold_checkpoint c ON c.seq = (
    SELECT seq FROM refold_checkpoint WHERE space = s.id AND state = 0 ORDER BY id DESC LIMIT 1
) LEFT JOIN refold_checkpoint p ON p.seq = c.parent
WHERE s.thread = :thread AND s.ns = :ns;

-- name: checkpoint_named
-- One checkpoint of a (thread, namespace) by id, hidden ones too, behind its space. `wide_id` is the id as text.
SELECT s.id, s.wide, c.seq, c.id, c.state, c.parent, c.run, c.template, c.data, p.id
FROM refold_space s
JOIN refold_checkpoint c ON c.space = s.id AND c.id = CASE WHEN s.wide = 0 THEN :id ELSE :wide_id END
LEFT JOIN refold_checkpoint p ON p.seq = c.parent
WHERE s.thread = :thread AND s.ns = :ns;

-- name: checkpoint_pages
-- Listed checkpoints that are not newer than some (`:keys`) of their spaces, newest first, up to `:count` of each; one
-- row without a checkpoint where there are none.
SELECT a.seq, s.wide, c.seq, c.id, c.template, c.data
FROM refold_checkpoint a JOIN refold_space s ON s.id = a.space
LEFT JOIN refold_checkpoint c ON c.seq IN (
    SELECT seq FROM refold_checkpoint WHERE space = a.space AND state = 0 AND id <= a.id ORDER BY id DESC LIMIT :count
)
WHERE a.seq IN (:keys) ORDER BY a.seq, c.id DESC;

-- name: checkpoint_listed
-- Listed checkpoints by seq, behind their spaces.
SELECT s.id, s.wide, c.seq, c.id, c.state, c.parent, c.run, c.template, c.data, p.id
FROM refold_checkpoint c JOIN refold_space s ON s.id = c.space LEFT JOIN refold_checkpoint p ON p.seq = c.parent
WHERE c.seq IN (:keys) AND c.state = 0;

-- name: checkpoint_keys
-- Every checkpoint of a space, newest first: what a plan of deletion needs.
SELECT seq, id, state, parent, template FROM refold_checkpoint WHERE space = :space ORDER BY id DESC;

-- name: checkpoint_rows
-- Rows by seq.
SELECT c.seq, c.id, c.state, c.parent, c.run, c.template, c.data, p.id
FROM refold_checkpoint c LEFT JOIN refold_checkpoint p ON p.seq = c.parent
WHERE c.seq IN (:keys);

-- name: checkpoint_chain
-- A checkpoint's ancestors, nearest first.
WITH RECURSIVE chain (seq, parent, template, steps) AS (
    SELECT p.seq, p.parent, p.template, 1
    FROM refold_checkpoint c JOIN refold_checkpoint p ON p.seq = c.parent WHERE c.seq = :seq AND p.state < 2
    UNION ALL
    SELECT p.seq, p.parent, p.template, chain.steps + 1
    FROM chain JOIN refold_checkpoint p ON p.seq = chain.parent WHERE p.state < 2 AND chain.steps < :count
)
SELECT seq, template FROM chain ORDER BY steps;

-- name: checkpoint_add
INSERT INTO refold_checkpoint (space, id, state, parent, run, template, data)
VALUES (:space, :id, :state, :parent, :run, :template, :data) RETURNING seq;

-- name: checkpoint_set
UPDATE refold_checkpoint SET state = :state, parent = :parent, run = :run, template = :template, data = :data
WHERE seq = :seq;

-- name: checkpoint_state
UPDATE refold_checkpoint SET state = :state WHERE seq = :seq;

-- name: checkpoint_reid
UPDATE refold_checkpoint SET id = :id WHERE seq = :seq;

-- name: checkpoint_orphan
-- A checkpoint whose parent goes has none any more.
UPDATE refold_checkpoint SET parent = NULL WHERE seq = :seq;

-- name: checkpoint_delete
DELETE FROM refold_checkpoint WHERE seq = :seq;

-- name: checkpoints_delete_space
DELETE FROM refold_checkpoint WHERE space = :space;

-- name: checkpoint_scan
-- All checkpoints in the order of seq, a page at a time.
SELECT seq, space, id, template, data FROM refold_checkpoint WHERE seq > :after ORDER BY seq LIMIT :count;

-- name: checkpoint_scan_space
SELECT seq, id, state, parent, run, template, data FROM refold_checkpoint WHERE space = :space ORDER BY seq;

-- name: run_get
SELECT id FROM refold_run WHERE name = :name AND space = :space;

-- name: run_add
INSERT INTO refold_run (name, space) VALUES (:name, :space) ON CONFLICT (name, space) DO NOTHING;

-- name: run_spaces
SELECT r.id, r.space, s.wide FROM refold_run r JOIN refold_space s ON s.id = r.space WHERE r.name IN (:keys);

-- name: run_checkpoints
SELECT seq FROM refold_checkpoint WHERE space = :space AND run = :run;

-- name: runs_of_space
SELECT id, name FROM refold_run WHERE space = :space;

-- name: runs_unused
-- The spaces that have runs of no checkpoint. Without the space held it is a guess.
SELECT DISTINCT space FROM refold_run
WHERE id NOT IN (SELECT run FROM refold_checkpoint WHERE run IS NOT NULL) ORDER BY space;

-- name: runs_delete_unused
-- The runs of a space that is held to which no checkpoint belongs.
DELETE FROM refold_run WHERE space = :space
AND id NOT IN (SELECT run FROM refold_checkpoint WHERE space = :space AND run IS NOT NULL);

-- name: runs_delete_space
DELETE FROM refold_run WHERE space = :space;

-- name: write_get
SELECT template, data FROM refold_task_write WHERE checkpoint = :checkpoint AND task = :task;

-- name: write_put
INSERT INTO refold_task_write (checkpoint, task, template, data) VALUES (:checkpoint, :task, :template, :data)
ON CONFLICT (checkpoint, task) DO UPDATE SET template = excluded.template, data = excluded.data;

-- name: writes_of
SELECT w.checkpoint, w.task, w.template, w.data, c.id
FROM refold_task_write w JOIN refold_checkpoint c ON c.seq = w.checkpoint WHERE w.checkpoint IN (:keys);

-- name: writes_delete
DELETE FROM refold_task_write WHERE checkpoint = :checkpoint;

-- name: writes_delete_space
DELETE FROM refold_task_write WHERE checkpoint IN (SELECT seq FROM refold_checkpoint WHERE space = :space);

-- name: writes_lost
-- Writes of checkpoints that are not there.
SELECT count(*) FROM refold_task_write WHERE checkpoint NOT IN (SELECT seq FROM refold_checkpoint);

-- name: writes_sweep
DELETE FROM refold_task_write WHERE checkpoint NOT IN (SELECT seq FROM refold_checkpoint);

-- name: write_scan
-- All rows of writes, a page of checkpoints at a time.
SELECT w.checkpoint, w.task, w.template, w.data, c.id, c.space
FROM refold_task_write w JOIN refold_checkpoint c ON c.seq = w.checkpoint
WHERE w.checkpoint > :after AND w.checkpoint <= :upto ORDER BY w.checkpoint;

-- name: write_upto
-- The last checkpoint of the next page of writes.
SELECT max(checkpoint) FROM (
    SELECT checkpoint FROM refold_task_write WHERE checkpoint > :after ORDER BY checkpoint LIMIT :count
) page;

-- name: blob_find
-- Which of some hashes are stored, and which of those a collection wants to remove.
SELECT b.hash, b.id, d.blob FROM refold_blob b LEFT JOIN refold_doomed d ON d.blob = b.id WHERE b.hash IN (:keys);

-- name: blob_rescue
DELETE FROM refold_doomed WHERE blob = :blob RETURNING blob;

-- name: blob_add
INSERT INTO refold_blob (hash, codec, base, data) VALUES (:hash, :codec, :base, :data)
ON CONFLICT (hash) DO NOTHING RETURNING hash, id;

-- name: blob_get
SELECT id, codec, base, data FROM refold_blob WHERE id IN (:keys);

-- name: blob_hashes
SELECT id, hash, codec, base FROM refold_blob WHERE id IN (:keys);

-- name: blob_hold
-- Hold blobs while it is decided what they are stored in (SQLite has one writer anyway).
SELECT id, hash, codec, base FROM refold_blob WHERE id IN (:keys) ORDER BY id;

-- name: blob_scan
SELECT id, hash, codec, base FROM refold_blob WHERE id > :after ORDER BY id LIMIT :count;

-- name: blob_scan_bodies
-- Leaves that are in no pack, have no base and are no templates, in the order of their ids: what compaction packs.
-- Without the data of those that are larger than `largest`.
SELECT id, codec, base, CASE WHEN length(data) <= :largest THEN data END FROM refold_blob
WHERE id > :after AND (codec & 15) < 2 AND (codec & 80) = 0 ORDER BY id LIMIT :count;

-- name: blob_repack
UPDATE refold_blob SET codec = :codec, base = :base, data = NULL WHERE id = :id;

-- name: blob_delete
DELETE FROM refold_blob WHERE id = :blob;

-- name: pack_get
SELECT id, codec, data FROM refold_pack WHERE id IN (:keys);

-- name: packs_lost
-- Packs in which no blob is.
SELECT count(*) FROM refold_pack
WHERE id NOT IN (SELECT base FROM refold_blob WHERE (codec & 15) = 3 AND base IS NOT NULL);

-- name: packs_sweep
DELETE FROM refold_pack
WHERE id NOT IN (SELECT base FROM refold_blob WHERE (codec & 15) = 3 AND base IS NOT NULL) RETURNING id;

-- name: pack_add
INSERT INTO refold_pack (codec, data) VALUES (:codec, :data) RETURNING id;

-- name: pack_delete
DELETE FROM refold_pack WHERE id = :pack;

-- name: log_get
SELECT parent, prefix, depth FROM refold_log WHERE id = :log;

-- name: log_lock
-- Hold a log while it grows (SQLite has one writer anyway).
SELECT parent, prefix, depth FROM refold_log WHERE id = :log;

-- name: log_add
INSERT INTO refold_log (parent, prefix, depth) VALUES (:parent, :prefix, :depth) RETURNING id;

-- name: log_delete
DELETE FROM refold_log WHERE id = :log;

-- name: log_scan
SELECT id, parent, prefix FROM refold_log WHERE id > :after ORDER BY id LIMIT :count;

-- name: log_segments
-- The segments of some logs, their ancestors' included: which log was asked for, and up to where a segment counts.
WITH RECURSIVE chain (asked, id, parent, prefix, upto) AS (
    SELECT id, id, parent, prefix, 9223372036854775807 FROM refold_log WHERE id IN (:keys)
    UNION ALL
    SELECT chain.asked, l.id, l.parent, l.prefix, min(chain.prefix, chain.upto)
    FROM chain JOIN refold_log l ON l.id = chain.parent
)
SELECT chain.asked, s.log, s.start, chain.upto, s.codec, s.data FROM chain JOIN refold_segment s ON s.log = chain.id
WHERE s.start < chain.upto ORDER BY chain.asked, s.start;

-- name: segment_tail
SELECT start, codec, data FROM refold_segment WHERE log = :log ORDER BY start DESC LIMIT 1;

-- name: segment_put
INSERT INTO refold_segment (log, start, codec, data) VALUES (:log, :start, :codec, :data)
ON CONFLICT (log, start) DO UPDATE SET codec = excluded.codec, data = excluded.data;

-- name: segments_delete
DELETE FROM refold_segment WHERE log = :log;

-- name: doom
INSERT INTO refold_doomed (blob) VALUES (:blob) ON CONFLICT (blob) DO NOTHING;

-- name: meta_set
INSERT INTO refold_meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: meta_from
-- Facts whose key begins with a prefix, as a range.
SELECT key, value FROM refold_meta WHERE key >= :start AND key < :stop ORDER BY key LIMIT :count;

-- name: meta_delete
DELETE FROM refold_meta WHERE key = :key;

-- name: counts
-- Rows of each table.
SELECT (SELECT count(DISTINCT thread) FROM refold_space), (SELECT count(*) FROM refold_space),
    (SELECT count(*) FROM refold_checkpoint WHERE state = 0), (SELECT count(*) FROM refold_checkpoint WHERE state = 1),
    (SELECT count(*) FROM refold_task_write), (SELECT count(*) FROM refold_blob), (SELECT count(*) FROM refold_pack),
    (SELECT count(*) FROM refold_log), (SELECT coalesce(sum(length(data)), 0) FROM refold_blob),
    (SELECT coalesce(sum(length(data)), 0) FROM refold_pack);

-- name: size
-- Bytes of the database, free pages included.
SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size();

-- name: space_heads
-- The newest listed checkpoint of each space whose id is not greater than one, given as bytes and as text.
SELECT s.id, s.wide, c.seq, c.id
FROM refold_space s JOIN refold_checkpoint c ON c.seq = (
    SELECT seq FROM refold_checkpoint
    WHERE space = s.id AND state = 0 AND id <= CASE WHEN s.wide = 0 THEN :upto ELSE :wide_upto END
    ORDER BY id DESC LIMIT 1
)
WHERE s.id IN (:keys);

-- name: blob_bases
-- The bases of some blobs that have one.
SELECT id, base FROM refold_blob WHERE base IS NOT NULL AND (codec & 15) <> 3 AND id IN (:keys);

-- name: checkpoint_parent
UPDATE refold_checkpoint SET parent = :parent WHERE seq = :seq;

-- name: write_templates
-- Which channels were written at some checkpoints: a template says.
SELECT checkpoint, template FROM refold_task_write WHERE checkpoint IN (:keys);

-- name: checkpoint_count
SELECT count(*) FROM refold_checkpoint;

-- name: has_tables
-- A row where the tables are.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'refold_meta';

-- name: blob_range
-- Blobs that lie close together, some of which are wanted.
SELECT id, codec, base, data FROM refold_blob WHERE id BETWEEN :first AND :last;
