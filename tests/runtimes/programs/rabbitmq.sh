# SPDX-License-Identifier: Apache-2.0
# RabbitMQ, which listens on the loopback interface only.
set -e
export RABBITMQ_NODE_PORT="$PORT" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_DIST_PORT=$((PORT - 1)) RABBITMQ_NODENAME=culprit@localhost \
	ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_MNESIA_BASE=/tmp/mnesia RABBITMQ_LOG_BASE=/tmp/log \
	RABBITMQ_ENABLED_PLUGINS_FILE=/tmp/plugins RABBITMQ_PID_FILE=/tmp/pid \
	RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
exec sh /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server
