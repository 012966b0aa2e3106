UPDATE sites
SET built=least(greatest(sites.built, %(p_built)s::BIGINT), sites.changed), fingerprint=%(p_fingerprint)s::VARCHAR
WHERE sites.id = %(p_site_id)s::BIGINT
