"""The city pages as projects of two site builders: the same text, the same things around it, at their best settings.

As on our pages: canonical address, breadcrumbs, data for machines, the nearest pages of the lane; a home page of all
pages, a feed, a sitemap. Neither of the two keeps history, order or a ledger, and neither syncs what it writes.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.site_rows import SITE
from pipeline.content import generate
from pipeline.project.site import load_site
from pipeline.project.topics import load_topics
from pipeline.views import Draft, TopicRow, TopicView

MARK = "<!-- edited"
PAGE = """\
<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>@TITLE@ | Cities</title>
  <meta name="description" content="@DESCRIPTION@">
  <link rel="canonical" href="@ADDRESS@">
  <meta property="og:type" content="article">
  <meta property="og:site_name" content="Cities">
  <meta property="og:title" content="@TITLE@">
  <meta property="og:description" content="@DESCRIPTION@">
  <meta property="og:url" content="@ADDRESS@">
  <meta name="twitter:card" content="summary">
  <link rel="stylesheet" href="/style.css">
  <link rel="alternate" type="application/atom+xml" title="Cities" href="/feed.xml">
  <script type="application/ld+json">@DATA@</script>
</head>
<body class="kind-page">
  <a class="skip" href="#content">Skip to content</a>
  <header class="masthead"><div class="wrap masthead-row"><a class="brand" href="/">Cities</a></div></header>
  <main id="content" tabindex="-1">
    <div class="lead"><div class="wrap">
      <nav class="crumbs" aria-label="Breadcrumb"><ol>
        <li><a href="/">Cities</a></li>
        <li><span aria-current="page">@TITLE@</span></li>
      </ol></nav>
      <h1>@TITLE@</h1>
      <p class="standfirst">@DESCRIPTION@</p>
    </div></div>
    <div class="wrap">
      <article class="prose">@TEXT@</article>
      <section class="shelf" aria-labelledby="related-title">
        <h2 id="related-title">Read next</h2>
        <ul class="cards">@RELATED@</ul>
      </section>
    </div>
  </main>
  <footer class="colophon"><div class="wrap colophon-row">
    <p><strong>Cities</strong><br>A page for every city</p>
    <p><a href="/">Home</a> <a href="/feed.xml" type="application/atom+xml">Feed</a></p>
  </div></footer>
</body>
</html>
"""
HOME = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Cities</title></head>
<body><main id="content"><h1>Cities</h1><ul class="panels">@LANES@</ul></main></body>
</html>
"""

ELEVENTY = {
    "_includes/page.njk": {
        "TITLE": "{{ title }}",
        "DESCRIPTION": "{{ description }}",
        "ADDRESS": "https://cities.example{{ page.url }}",
        "TEXT": "{{ content | safe }}",
        "DATA": "{{ title | linked(description, page.url) | safe }}",
        "RELATED": "{% for near in collections.lanes[lane] | near(place) %}"
        '<li class="card"><a href="{{ near.url }}">{{ near.data.title }}</a><p>{{ near.data.description }}</p></li>'
        "{% endfor %}",
    },
    "index.njk": {
        "LANES": '{% for name, members in collections.lanes %}<li class="panel"><h2>{{ name }}</h2><ul class="chips">'
        '{% for city in members %}<li><a href="{{ city.url }}">{{ city.data.title }}</a></li>{% endfor %}</ul></li>'
        "{% endfor %}",
    },
}
ELEVENTY_FILES = {
    "pages/pages.json": '{"layout": "page.njk", "tags": "city"}',
    "sitemap.njk": """\
---
permalink: /sitemap.xml
eleventyExcludeFromCollections: true
---
<?xml version="1.0" encoding="utf-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
{%- for city in collections.city %}
<url><loc>https://cities.example{{ city.url }}</loc><lastmod>{{ city.date.toISOString() }}</lastmod></url>
{%- endfor %}
</urlset>
""",
    "feed.njk": """\
---
permalink: /feed.xml
eleventyExcludeFromCollections: true
---
<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom"><id>https://cities.example/</id><title>Cities</title>
{%- for city in collections.newest %}
<entry><id>https://cities.example{{ city.url }}</id><title>{{ city.data.title }}</title>\
<updated>{{ city.date.toISOString() }}</updated><summary>{{ city.data.description }}</summary></entry>
{%- endfor %}
</feed>
""",
    "eleventy.config.js": """\
module.exports = function (config) {
  config.setQuietMode(true);
  config.addCollection("lanes", (api) => {
    const lanes = {};
    for (const city of api.getFilteredByTag("city")) (lanes[city.data.lane] ||= [])[city.data.place] = city;
    return lanes;
  });
  config.addCollection("newest", (api) => api.getFilteredByTag("city").slice(-50));
  config.addNunjucksFilter("near", (lane, place) => {
    const count = Math.min(4, lane.length - 1), found = [];
    for (let step = -2; found.length < count; step++)
      if (step) found.push(lane[(((place + step) % lane.length) + lane.length) % lane.length]);
    return found;
  });
  config.addNunjucksFilter("linked", (title, description, url) => JSON.stringify({"@context": "https://schema.org",
    "@graph": [{"@type": "BreadcrumbList", "itemListElement": [
      {"@type": "ListItem", "position": 1, "name": "Cities", "item": "https://cities.example/"},
      {"@type": "ListItem", "position": 2, "name": title, "item": "https://cities.example" + url}]},
      {"@type": "Article", "headline": title, "description": description, "url": "https://cities.example" + url}]}));
  return {markdownTemplateEngine: false};
};
""",
}
HUGO = {
    "layouts/_default/single.html": {
        "TITLE": "{{ .Title }}",
        "DESCRIPTION": "{{ .Description }}",
        "ADDRESS": "{{ .Permalink }}",
        "TEXT": "{{ .Content }}",
        "DATA": '{{ dict "@context" "https://schema.org" "@graph" (slice'
        ' (dict "@type" "BreadcrumbList" "itemListElement" (slice'
        ' (dict "@type" "ListItem" "position" 1 "name" "Cities" "item" "https://cities.example/")'
        ' (dict "@type" "ListItem" "position" 2 "name" .Title "item" .Permalink)))'
        ' (dict "@type" "Article" "headline" .Title "description" .Description "url" .Permalink))'
        " | jsonify | safeJS }}",
        "RELATED": "{{ $near := slice }}{{ with .PrevInSection }}{{ $near = $near | append . }}"
        "{{ with .PrevInSection }}{{ $near = $near | append . }}{{ end }}{{ end }}"
        "{{ with .NextInSection }}{{ $near = $near | append . }}"
        "{{ with .NextInSection }}{{ $near = $near | append . }}{{ end }}{{ end }}"
        '{{ range $near }}<li class="card"><a href="{{ .RelPermalink }}">{{ .Title }}</a><p>{{ .Description }}</p></li>'
        "{{ end }}",
    },
    "layouts/index.html": {
        "LANES": '{{ range .Site.Sections }}<li class="panel"><h2>{{ .Title }}</h2><ul class="chips">'
        '{{ range .RegularPages }}<li><a href="{{ .RelPermalink }}">{{ .Title }}</a></li>{{ end }}</ul></li>{{ end }}',
    },
}
HUGO_FILES = {
    "layouts/_default/list.html": "<!doctype html><title>{{ .Title }}</title>\n",
    "hugo.toml": 'baseURL = "https://cities.example/"\ntitle = "Cities"\n'
    'disableKinds = ["taxonomy", "term"]\n[services.rss]\nlimit = 50\n[outputs]\nsection = ["html"]\n',
}


def eleventy_project(folder: Path, project: Path) -> Path:
    """The pages of our project for Eleventy; the folder."""
    _write(folder, ELEVENTY, ELEVENTY_FILES)
    for place, topic, draft in _drafts(project):
        own = f"permalink: /{topic.path}\nlane: {topic.lane}\nplace: {place}\n"
        _write_page(folder / "pages", topic, draft, own)
    return folder


def hugo_project(folder: Path, project: Path) -> Path:
    """The pages of our project for Hugo; the folder."""
    _write(folder, HUGO, HUGO_FILES)
    for place, topic, draft in _drafts(project):
        _write_page(folder / "content", topic, draft, f"url: /{topic.path}\nweight: {place + 1}\n")
    return folder


def edit_a_page(folder: Path, mark: str) -> None:
    """Change one line of one of the Markdown files below a folder."""
    file = next(islice(sorted(folder.rglob("*.md")), 10, None))
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text.partition(MARK)[0]}{MARK} {mark} -->\n", encoding="utf-8")


def _drafts(project: Path) -> Iterator[tuple[int, TopicRow, Draft]]:
    """Each page, as our first stage writes it, with its place in its lane."""
    site = load_site(project, SITE)
    places: dict[str, int] = {}
    for number, topic in enumerate(load_topics(site), start=1):
        t, place = topic, places.get(topic.lane, 0)
        view = TopicView(number, SITE, t.lane, t.slug, t.title, t.type, t.path, t.order, t.brief)
        places[topic.lane] = place + 1
        yield place, topic, generate(site, view)


def _write(folder: Path, pages: dict[str, dict[str, str]], files: dict[str, str]) -> None:
    texts = dict(files)
    for name, parts in pages.items():
        texts[name] = HOME if "LANES" in parts else PAGE
        for key, part in parts.items():
            texts[name] = texts[name].replace(f"@{key}@", part)
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _write_page(folder: Path, topic: TopicRow, draft: Draft, own: str) -> None:
    file = folder / f"{topic.path.rstrip('/')}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    head = f"title: {json.dumps(draft.title)}\ndescription: {json.dumps(draft.description)}\n{own}"
    file.write_text(f"---\n{head}---\n{draft.body}", encoding="utf-8")
