# SPDX-License-Identifier: Apache-2.0
# MariaDB without passwords, PHP-FPM, and nginx.
set -e
mkdir /tmp/data
mariadb-install-db --no-defaults --user=root --datadir=/tmp/data --auth-root-authentication-method=normal --skip-test-db
mariadbd --no-defaults --user=root --datadir=/tmp/data --socket=/tmp/mariadb.sock --skip-networking &
until mariadb --no-defaults --socket=/tmp/mariadb.sock --user=root --execute='SELECT 1'; do sleep 0.2; done
cp /tmp/phpmyadmin.php /etc/phpmyadmin/config.inc.php
php-fpm8.2 -c /tmp/php.ini --nodaemonize --allow-to-run-as-root --fpm-config /tmp/fpm.conf &
until [ -e /tmp/fpm.sock ]; do sleep 0.2; done
exec nginx -c /tmp/nginx-fpm.conf
