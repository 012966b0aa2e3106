SELECT topics.id, topics.title AS topic_title, topics.revision_id, revisions.number, revisions.title,
    revisions.description, revisions.body, revisions.front_matter, revisions.lineage, jobs.id AS job_id, jobs.state,
    jobs.stage, jobs.error_class, jobs.reserved_by, (
  SELECT stages.name
  FROM stages
  WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.state != 'retired'
  ORDER BY stages.ordinal
  LIMIT 1
) AS first
FROM topics
LEFT OUTER JOIN revisions ON revisions.id = topics.revision_id
LEFT OUTER JOIN jobs ON jobs.topic_id = topics.id AND jobs.finished_at IS NULL
WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.slug = %(p_slug)s::VARCHAR
