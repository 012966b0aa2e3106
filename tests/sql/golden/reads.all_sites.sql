SELECT sites.id, sites.slug, sites.state
FROM sites
ORDER BY sites.slug
