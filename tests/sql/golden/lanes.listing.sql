SELECT lanes.name, lanes.state, lanes.on_failed, lanes.overrides, coalesce(planned.topics, %(coalesce_1)s::INTEGER) AS
    topics, coalesce(live.live, %(coalesce_2)s::INTEGER) AS live, coalesce(waiting.waiting, %(coalesce_3)s::INTEGER) AS
    waiting, head.id AS head_job, head.position AS head_position, named.slug AS head_slug, head.stage AS head_stage,
    head.state AS head_state, pause.at AS paused_at, pause.actor AS paused_by, pause.reason AS paused_reason
FROM lanes
LEFT OUTER JOIN LATERAL (
  SELECT gates.ordinal AS ordinal, gates.passed AS passed
  FROM gates
  WHERE gates.lane_id = lanes.id AND gates.width = 1
  ORDER BY gates.ordinal DESC
  LIMIT 1
) AS last ON true
LEFT OUTER JOIN LATERAL (
  SELECT jobs.id AS id, jobs.topic_id AS topic_id, jobs.position AS position, jobs.stage AS stage, jobs.state AS state
  FROM jobs
  WHERE jobs.lane_id = lanes.id AND jobs.position > last.passed AND jobs.cleared < last.ordinal AND jobs.finished_at IS
      NULL
  ORDER BY jobs.position
  LIMIT 1
) AS head ON true
LEFT OUTER JOIN topics AS named ON named.id = head.topic_id
LEFT OUTER JOIN LATERAL (
  SELECT events.at AS at, events.actor AS actor, events.reason AS reason
  FROM events
  WHERE events.site_id = lanes.site_id AND events.lane_id = lanes.id AND events.job_id IS NULL AND events.verb = CASE
      WHEN (lanes.state = 'closed') THEN 'close' ELSE 'pause' END AND lanes.state != 'active'
  ORDER BY events.id DESC
  LIMIT 1
) AS pause ON true
LEFT OUTER JOIN (
  SELECT topics.lane_id AS lane_id, count(*) AS topics
  FROM topics
  WHERE topics.site_id = %(p_site_id)s::BIGINT
  GROUP BY topics.lane_id
) AS planned ON planned.lane_id = lanes.id
LEFT OUTER JOIN (
  SELECT shown.lane_id AS lane_id, count(DISTINCT shown.id) AS live
  FROM topics AS shown
  JOIN publications ON publications.topic_id = shown.id
  WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.live_path IS NOT NULL
  GROUP BY shown.lane_id
) AS live ON live.lane_id = lanes.id
LEFT OUTER JOIN (
  SELECT jobs.lane_id AS lane_id, count(*) AS waiting
  FROM jobs
  WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.state = 'waiting'
  GROUP BY jobs.lane_id
) AS waiting ON waiting.lane_id = lanes.id
WHERE lanes.site_id = %(p_site_id)s::BIGINT
ORDER BY lanes.id
