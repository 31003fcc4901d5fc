# SPDX-License-Identifier: Apache-2.0
# Jekyll builds a site: Markdown, highlighted code, and a layout with a list of all pages.
set -e
mkdir -p /tmp/site/_posts /tmp/site/_layouts && cd /tmp/site
echo 'title: Parts
markdown: kramdown
permalink: /:title' >_config.yml
echo '<!doctype html><title>{{ page.title }}</title>{{ content }}<ul>{% for post in site.posts %}<li>{{ post.title | escape }}:
{{ post.content | strip_html | number_of_words }}{% endfor %}</ul>' >_layouts/post.html
for n in $(seq 100 220); do
	echo "---
layout: post
title: Part $n
---
# Part $n

A *part* with [a link](https://example.org/$n), and a table:

| name | price |
|------|-------|
| $n   | ${n}0 |

\`\`\`ruby
def price_of(part)
  Math.sqrt(part) * $n # of part $n
end
\`\`\`" >_posts/2026-01-01-part-"$n".md
done
jekyll build --destination /tmp/built --disable-disk-cache
[ -s /tmp/built/part-110.html ]
