SELECT sites.id, sites.slug, sites.name, sites.base_url, sites.state, (
  SELECT count(*) AS count_1
  FROM topics
  WHERE topics.site_id = sites.id
) AS topics, (
  SELECT count(DISTINCT publications.topic_id) AS count_2
  FROM publications
  WHERE publications.site_id = sites.id AND publications.live_path IS NOT NULL
) AS live, pause.at AS paused_at, pause.actor AS paused_by, pause.reason AS paused_reason
FROM sites
LEFT OUTER JOIN LATERAL (
  SELECT events.at AS at, events.actor AS actor, events.reason AS reason
  FROM events
  WHERE events.site_id = sites.id AND events.lane_id IS NULL AND events.job_id IS NULL AND events.verb = 'pause' AND NOT
      (events.details ? %(details_1)s::VARCHAR) AND sites.state = 'paused'
  ORDER BY events.id DESC
  LIMIT 1
) AS pause ON true
ORDER BY sites.slug
