SELECT jobs.topic_id
FROM jobs
WHERE jobs.topic_id = any(%(p_topic_ids)s::BIGINT[]) AND jobs.finished_at IS NULL AND jobs.state != 'reserved' AND
    jobs.stage IN (
  SELECT stages.name
  FROM stages
  WHERE stages.site_id = %(p_site_id)s::BIGINT AND stages.state != 'retired'
  ORDER BY stages.ordinal
  LIMIT 2
)
ORDER BY jobs.id
FOR NO KEY UPDATE
