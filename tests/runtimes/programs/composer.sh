# SPDX-License-Identifier: Apache-2.0
# Composer updates a project of 40 packages, each of which needs the next, and writes its class map.
set -e
mkdir -p /tmp/project /tmp/parts && cd /tmp/parts
methods='
    /* a price */
    public function price1(int $n): string
    {
        return "class no 1" . $n . '\''interface'\'';
    }

    // the class of the part
    public function price2(string ...$names): array
    {
        return array_map(fn (string $name) => "$name: {$this->count()}", $names);
    }
'
methods=$methods$methods$methods
methods=$methods$methods
for n in $(seq 40); do
	mkdir -p part"$n"/src
	need='{}'
	[ "$n" = 40 ] || need="{\"culprit/part$((n + 1))\": \"^1.0\"}"
	echo "{\"name\": \"culprit/part$n\", \"version\": \"1.$n.0\", \"require\": $need, \"autoload\": {\"classmap\": [\"src/\"]}}" \
		>part"$n"/composer.json
	for f in $(seq 100); do
		echo "<?php
namespace Parts\\Part$n;

/** The class of file $f. */
final class Part${f}Of1 implements \\Countable
{ $methods }

abstract class Part${f}Of2 implements \\Countable
{ $methods }

interface Part${f}Of3 { }" >part"$n"/src/part"$f".php
	done
done
cd /tmp/project
echo '{"name": "culprit/project", "require": {"culprit/part1": "^1.0"},
  "repositories": [{"type": "path", "url": "/tmp/parts/*", "options": {"symlink": false}}, {"packagist.org": false}],
  "config": {"optimize-autoloader": true}}' >composer.json
export COMPOSER_ALLOW_SUPERUSER=1 COMPOSER_HOME=/tmp/composer COMPOSER_NO_INTERACTION=1
php8.2 -n -d extension=ctype -d extension=fileinfo -d extension=iconv -d extension=mbstring -d extension=phar -d extension=tokenizer \
	/usr/bin/composer update --quiet --no-plugins
grep -q Part100Of3 vendor/composer/autoload_classmap.php
