INSERT INTO sites (slug, name, base_url, time_zone, locale, settings)
VALUES (%(p_slug)s::VARCHAR, %(p_name)s::VARCHAR, %(p_base_url)s::VARCHAR, %(p_time_zone)s::VARCHAR,
    %(p_locale)s::VARCHAR, %(p_settings)s::JSONB)
ON CONFLICT (slug) DO
UPDATE
SET name = excluded.name, base_url = excluded.base_url, time_zone = excluded.time_zone, locale = excluded.locale,
    settings = excluded.settings
RETURNING sites.id, sites.state
