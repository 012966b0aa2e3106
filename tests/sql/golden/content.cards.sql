SELECT topics.id, lanes.name, topics.position, topics.type, topics.path, coalesce(was.title, now.title, topics.title) AS
    title, coalesce(was.description, now.description, %(coalesce_1)s::VARCHAR) AS description, published.live_path IS
    NOT NULL AS live
FROM topics
JOIN lanes ON lanes.id = topics.lane_id
LEFT OUTER JOIN publications AS published ON published.topic_id = topics.id AND published.target = %(p_target)s::VARCHAR
LEFT OUTER JOIN revisions AS was ON was.id = published.live_revision
LEFT OUTER JOIN revisions AS now ON now.id = topics.revision_id
WHERE topics.id = any(%(p_ids)s)
