WITH added AS (
  INSERT INTO revisions (site_id, topic_id, number, origin, fence, title, description, title_key, description_key, body,
      front_matter, content_hash, lineage)
  SELECT topics.site_id AS site_id, topics.id AS id, topics.revisions + %(revisions_1)s::INTEGER AS anon_1,
      %(p_origin)s::VARCHAR AS anon_2, drafts_in.fence AS fence, drafts_in.title AS title, drafts_in.description AS
      description, drafts_in.title_key AS title_key, drafts_in.description_key AS description_key, drafts_in.body AS
      body, drafts_in.front_matter AS front_matter, drafts_in.content_hash AS content_hash, drafts_in.lineage AS lineage
  FROM json_to_recordset(CAST(%(drafts)s::JSON AS JSON)) AS drafts_in(topic_id BIGINT, fence BIGINT, title TEXT,
      description TEXT, title_key TEXT, description_key TEXT, body TEXT, front_matter JSONB, content_hash TEXT, lineage
      JSONB)
  JOIN topics ON topics.id = drafts_in.topic_id
  WHERE topics.revision_id IS NOT DISTINCT
  FROM %(p_seen)s::BIGINT
  RETURNING revisions.id, revisions.topic_id, revisions.number
)
UPDATE topics
SET revision_id=added.id, revisions=added.number
FROM added
WHERE topics.id = added.topic_id
RETURNING added.id, added.number
