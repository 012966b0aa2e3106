SELECT sites.id, sites.slug, sites.state, sites.changed, sites.built, sites.fingerprint
FROM sites
WHERE sites.slug = %(p_slug)s::VARCHAR
