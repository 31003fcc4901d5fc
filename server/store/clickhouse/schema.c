/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables, and the migration of older schemas.
 *
 *	culprit_schema	the versions that the schema had; the largest is the current one
 *	samples		sorted so that the rows of a stack lie together. `day` is the day of the
 *			newest sample of the batch, so that a batch lies in one partition and is
 *			written as a whole or not at all. A row without a type is the marker of a
 *			batch (write.c)
 *	partitions	states of partitions of samples (clickhouse.h); rows are only added
 *	series, functions, frames, stacks
 *			dictionaries, by id. `month` is the month in which a row was last sent:
 *			rows in use are sent again each month, and old months are dropped
 *	spans, links	by trace (spans.c). `day` is as in samples; days are dropped as a whole
 *	agents		the last reports of agents (agents.c)
 *	names		late symbols: the frames that replace a frame (retain.c)
 *	symbols		what became of symbol files (symbols.c); rows are only added, and dropped
 *			by month
 *	symbol_parts	the content of symbol files
 *
 * Sums of whole hours by stack and by series are projections of samples: ClickHouse keeps them with
 * each part and reads them when they can answer a query. Old servers have no projections.
 *
 * In a cluster, X is a Distributed table over X_local on every shard. Dictionaries are sharded by
 * id. Samples, spans and links of an INSERT go to one shard, which their `batch` chooses: every
 * shard has a part of every service. Rounded samples are sharded by stack. No query
 * relies on the place of a row. Every node has all rows of culprit_schema, partitions, agents,
 * names, symbols and symbol_parts, so that the rows of one INSERT become visible at once, and rows
 * can be dropped without asking other nodes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "server/store/clickhouse/clickhouse.h"

#define SCHEMA_VERSION 7
#define KEEPER_PATH "/clickhouse/tables"

struct column {
	const char *name, *type, *codec; /* codec: for modern servers, or NULL */
};

enum where {
	ONE_SHARD,  /* a row is on one shard */
	EVERYWHERE, /* every node has all rows */
};

struct table {
	const char *name;
	const char *engine; /* without "Replicated" */
	const char *partition_by, *order_by;
	const char *shard_by;
	enum where where;
	struct column columns[20];
};

static const struct table tables[] = {
	{
		.name = "samples",
		.engine = "MergeTree",
		.partition_by = "(day, resolution, run)",
		.order_by = "(service, type, hour, stack, series, at)",
		.shard_by = "if(run = 0, batch, cityHash64(stack))",
		.columns = {{"day", "UInt32", NULL},
			    {"resolution", "UInt32", NULL},
			    {"run", "UInt32", NULL},
			    {"service", "LowCardinality(String)", NULL},
			    {"type", "LowCardinality(String)", NULL},
			    {"hour", "UInt32", "Delta, ZSTD(1)"},
			    {"stack", "UInt64", "ZSTD(1)"},
			    {"series", "UInt64", "ZSTD(1)"},
			    {"at", "UInt32", "T64, ZSTD(1)"},
			    {"batch", "UInt64", "ZSTD(1)"},
			    {"count", "UInt64", "T64, ZSTD(1)"},
			    {"value", "Int64", "T64, ZSTD(1)"}},
	},
	{
		.name = "partitions",
		.engine = "MergeTree",
		.order_by = "(day, resolution, run, state)",
		.where = EVERYWHERE,
		.columns = {{"day", "UInt32", NULL},
			    {"resolution", "UInt32", NULL},
			    {"run", "UInt32", NULL},
			    {"state", "UInt8", NULL},
			    {"at_ms", "UInt64", NULL}},
	},
	{
		.name = "series",
		.engine = "ReplacingMergeTree",
		.partition_by = "month",
		.order_by = "id",
		.shard_by = "id",
		.columns = {{"month", "UInt32", NULL},
			    {"id", "UInt64", NULL},
			    {"names", "Array(String)", "ZSTD(1)"},
			    {"values", "Array(String)", "ZSTD(1)"}},
	},
	{
		.name = "functions",
		.engine = "ReplacingMergeTree",
		.partition_by = "month",
		.order_by = "id",
		.shard_by = "id",
		.columns = {{"month", "UInt32", NULL},
			    {"id", "UInt64", NULL},
			    {"name", "String", "ZSTD(1)"},
			    {"system_name", "String", "ZSTD(1)"},
			    {"file", "String", "ZSTD(1)"},
			    {"start_line", "UInt32", "ZSTD(1)"}},
	},
	{
		.name = "frames",
		.engine = "ReplacingMergeTree",
		.partition_by = "month",
		.order_by = "id",
		.shard_by = "id",
		.columns = {{"month", "UInt32", NULL},
			    {"id", "UInt64", NULL},
			    {"kind", "UInt8", NULL},
			    {"flags", "UInt8", NULL},
			    {"path", "LowCardinality(String)", NULL},
			    {"build_id", "LowCardinality(String)", NULL},
			    {"address", "UInt64", "ZSTD(1)"},
			    {"function", "UInt64", "ZSTD(1)"},
			    {"line", "UInt32", "ZSTD(1)"},
			    {"col", "UInt32", "ZSTD(1)"}},
	},
	{
		.name = "stacks",
		.engine = "ReplacingMergeTree",
		.partition_by = "month",
		.order_by = "(id, service)",
		.shard_by = "id",
		.columns = {{"month", "UInt32", NULL},
			    {"id", "UInt64", NULL},
			    {"service", "LowCardinality(String)", NULL},
			    {"frames", "Array(UInt64)", "ZSTD(1)"}},
	},
	{
		.name = "names",
		.engine = "ReplacingMergeTree",
		.order_by = "frame",
		.where = EVERYWHERE,
		.columns = {{"frame", "UInt64", NULL}, {"frames", "Array(UInt64)", "ZSTD(1)"}},
	},
};

/* New in version 2. */
static const struct table span_tables[] = {
	{
		.name = "spans",
		.engine = "MergeTree",
		.partition_by = "day",
		.order_by = "(trace, start_ns)",
		.shard_by = "batch",
		.columns = {{"day", "UInt32", NULL},
			    {"batch", "UInt64", "ZSTD(1)"},
			    {"trace", "FixedString(16)", "ZSTD(1)"},
			    {"span", "UInt64", NULL},
			    {"parent", "UInt64", "ZSTD(1)"},
			    {"start_ns", "UInt64", "Delta, ZSTD(1)"},
			    {"duration_ns", "UInt64", "T64, ZSTD(1)"},
			    {"service", "LowCardinality(String)", NULL},
			    {"name", "LowCardinality(String)", NULL},
			    {"endpoint", "LowCardinality(String)", NULL},
			    {"kind", "UInt8", NULL},
			    {"status", "UInt8", NULL},
			    {"root", "UInt8", NULL},
			    {"tid", "UInt32", "ZSTD(1)"},
			    {"message", "String", "ZSTD(1)"},
			    {"names", "Array(String)", "ZSTD(1)"},
			    {"values", "Array(String)", "ZSTD(1)"},
			    {"resource_names", "Array(String)", "ZSTD(1)"},
			    {"resource_values", "Array(String)", "ZSTD(1)"}},
	},
	{
		.name = "links",
		.engine = "MergeTree",
		.partition_by = "day",
		.order_by = "(trace, span, service, type, series, stack)",
		.shard_by = "batch",
		.columns = {{"day", "UInt32", NULL},
			    {"batch", "UInt64", "ZSTD(1)"},
			    {"trace", "FixedString(16)", "ZSTD(1)"},
			    {"span", "UInt64", "ZSTD(1)"},
			    {"service", "LowCardinality(String)", NULL},
			    {"type", "LowCardinality(String)", NULL},
			    {"series", "UInt64", "ZSTD(1)"},
			    {"stack", "UInt64", "ZSTD(1)"},
			    {"time_ms", "UInt64", "Delta, ZSTD(1)"},
			    {"count", "UInt64", "T64, ZSTD(1)"},
			    {"value", "Int64", "T64, ZSTD(1)"}},
	},
};

/* New in version 3. ClickHouse uses a projection only if each condition is on one of its keys. */
static const struct {
	const char *name, *select, *group;
} projections[] = {
	{"by_stack", "sum(count), sum(value), max(resolution)",
	 "day, run, service, type, hour, stack"},
	{"by_series",
	 "sum(count), sum(value), max(resolution), min(toUInt64(hour) * 3600000 + at), "
	 "max(toUInt64(hour) * 3600000 + at)",
	 "day, run, service, type, hour, series"},
};

/* New in version 5. */
static const struct table agents_table = {
	.name = "agents",
	.engine = "ReplacingMergeTree",
	.partition_by = "month",
	.order_by = "(host, id)",
	.where = EVERYWHERE,
	.columns = {{"month", "UInt32", NULL},
		    {"host", "String", "ZSTD(1)"},
		    {"id", "String", "ZSTD(1)"},
		    {"server", "UInt64", "ZSTD(1)"},
		    {"seen_ms", "UInt64", "ZSTD(1)"},
		    {"newest_ms", "UInt64", "ZSTD(1)"},
		    {"names", "Array(String)", "ZSTD(1)"},
		    {"values", "Array(String)", "ZSTD(1)"}},
};

/* New in version 6. */
static const struct table symbol_tables[] = {
	{
		.name = "symbols",
		.engine = "MergeTree",
		.partition_by = "month",
		.order_by = "(build_id, changed_ms)",
		.where = EVERYWHERE,
		.columns = {{"month", "UInt32", NULL},
			    {"build_id", "String", "ZSTD(1)"},
			    {"changed_ms", "UInt64", "ZSTD(1)"},
			    {"file", "UInt64", "ZSTD(1)"},
			    {"state", "UInt8", NULL},
			    {"bytes", "UInt64", "ZSTD(1)"},
			    {"source", "String", "ZSTD(1)"},
			    {"used_ms", "UInt64", "ZSTD(1)"},
			    {"token", "String", "ZSTD(1)"},
			    {"peer", "String", "ZSTD(1)"}},
	},
	{
		.name = "symbol_parts",
		.engine = "ReplacingMergeTree",
		.partition_by = "file",
		.order_by = "(file, part)",
		.where = EVERYWHERE,
		.columns = {{"file", "UInt64", "ZSTD(1)"},
			    {"part", "UInt32", "ZSTD(1)"},
			    {"data", "String", "ZSTD(3)"}},
	},
};

static const struct table version_table = {
	.name = "culprit_schema",
	.engine = "MergeTree",
	.order_by = "version",
	.where = EVERYWHERE,
	.columns = {{"version", "UInt32", NULL}, {"at", "UInt32", NULL}},
};

const char *ch_local(const struct ch *s)
{
	return s->config.cluster ? "_local" : "";
}

const char *ch_on_cluster(const struct ch *s, struct str *scratch)
{
	str_clear(scratch);
	if (s->config.cluster)
		str_printf(scratch, " ON CLUSTER `%s`", s->config.cluster);
	return str_get(scratch);
}

/* ---- statements ---- */

/* On old servers LowCardinality is experimental, and does not work with ON CLUSTER. */
static void put_column(const struct ch *s, const struct column *c, struct str *out)
{
	static const char low[] = "LowCardinality(String)";

	if (!s->modern && !strcmp(c->type, low))
		str_printf(out, "`%s` String", c->name);
	else
		str_printf(out, "`%s` %s", c->name, c->type);
	if (s->modern && c->codec)
		str_printf(out, " CODEC(%s)", c->codec);
}

static void put_engine(const struct ch *s, const struct table *t, struct str *out)
{
	const char *replica = t->where == EVERYWHERE ? "{shard}-{replica}" : "{replica}";

	if (s->config.cluster)
		str_printf(out, " ENGINE = Replicated%s('" KEEPER_PATH "/%s/%s/%s', '%s')",
			   t->engine, t->where == EVERYWHERE ? "all" : "{shard}",
			   s->config.database, t->name, replica);
	else
		str_printf(out, " ENGINE = %s", t->engine);
	if (t->partition_by)
		str_printf(out, " PARTITION BY %s", t->partition_by);
	str_printf(out, " ORDER BY %s", t->order_by);
	/* How many INSERTs ClickHouse remembers, to recognise a repeated one. */
	if (s->config.cluster)
		str_puts(out, " SETTINGS replicated_deduplication_window = 10000");
	else if (s->modern)
		str_puts(out, " SETTINGS non_replicated_deduplication_window = 10000");
}

static int create_distributed(struct ch *s, const struct table *t, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, cluster = {};

	str_printf(&sql,
		   "CREATE TABLE IF NOT EXISTS %s%s AS %s.%s_local ENGINE = Distributed(%s, %s, "
		   "%s_local, %s)",
		   t->name, ch_on_cluster(s, &cluster), s->config.database, t->name,
		   s->config.cluster, s->config.database, t->name, t->shard_by);
	return ch_select(s, str_get(&sql), NULL, reterr_diag);
}

static int create_table(struct ch *s, const struct table *t, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, cluster = {};
	bool distributed = s->config.cluster && t->where == ONE_SHARD;
	int r;

	str_printf(&sql, "CREATE TABLE IF NOT EXISTS %s%s%s (", t->name,
		   distributed ? "_local" : "", ch_on_cluster(s, &cluster));
	for (size_t i = 0; i < ARRAY_SIZE(t->columns) && t->columns[i].name; i++) {
		str_puts(&sql, i ? ", " : "");
		put_column(s, &t->columns[i], &sql);
	}
	str_putc(&sql, ')');
	put_engine(s, t, &sql);
	r = ch_select(s, str_get(&sql), NULL, reterr_diag);
	return r < 0 || !distributed ? r : create_distributed(s, t, reterr_diag);
}

/* ---- versions ---- */

/* The number that a statement returns; 0: the statement returns no row. */
static int select_number(struct ch *s, const char *sql, bool no_database, u64 *ret,
			 struct diag *reterr_diag)
{
	const struct ch_request q = {.sql = sql, .no_database = no_database};
	_cleanup_str_ struct str answer = {};
	u64 v = 0;
	int r = ch_run(s, &q, &answer, reterr_diag);

	if (r < 0)
		return r;
	if (answer.n && answer.data[answer.n - 1] == '\n')
		answer.data[--answer.n] = 0;
	if (answer.n && str_to_u64(str_get(&answer), 10, &v) < 0)
		return ch_damaged_answer(reterr_diag);
	*ret = v;
	return 0;
}

static int add_version(struct ch *s, u32 version, struct diag *reterr_diag)
{
	char sql[128];

	snprintf(sql, sizeof(sql), "INSERT INTO culprit_schema (version, at) VALUES (%u, %lld)",
		 version, (long long)time(NULL));
	return ch_select(s, sql, NULL, reterr_diag);
}

static int first_version(struct ch *s, struct diag *reterr_diag)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tables) && r == 0; i++)
		r = create_table(s, &tables[i], reterr_diag);
	return r;
}

static int second_version(struct ch *s, struct diag *reterr_diag)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(span_tables) && r == 0; i++)
		r = create_table(s, &span_tables[i], reterr_diag);
	return r;
}

/* The server computes the projections of existing parts in the background. */
static int third_version(struct ch *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str cluster = {};
	int r = 0;

	for (size_t i = 0; s->modern && i < ARRAY_SIZE(projections) && r == 0; i++) {
		_cleanup_str_ struct str alter = {}, sql = {};

		str_printf(&alter, "ALTER TABLE samples%s%s", ch_local(s),
			   ch_on_cluster(s, &cluster));
		str_printf(&sql, "%s ADD PROJECTION IF NOT EXISTS %s (SELECT %s, %s GROUP BY %s)",
			   str_get(&alter), projections[i].name, projections[i].group,
			   projections[i].select, projections[i].group);
		r = ch_select(s, str_get(&sql), NULL, reterr_diag);
		str_printf(&alter, " MATERIALIZE PROJECTION %s", projections[i].name);
		if (r == 0)
			r = ch_select(s, str_get(&alter), NULL, reterr_diag);
	}
	return r;
}

/* A Distributed table has no rows of its own. Until it exists again, writers are told to retry. */
static int shard_again(struct ch *s, const struct table *t, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, cluster = {};
	int r;

	if (t->where == EVERYWHERE)
		return 0;
	str_printf(&sql, "DROP TABLE IF EXISTS %s%s", t->name, ch_on_cluster(s, &cluster));
	r = ch_select(s, str_get(&sql), NULL, reterr_diag);
	return r < 0 ? r : create_distributed(s, t, reterr_diag);
}

/* Before, one shard had all samples of a service. Rows stay where they are. */
static int fourth_version(struct ch *s, struct diag *reterr_diag)
{
	int r = 0;

	for (size_t i = 0; s->config.cluster && i < ARRAY_SIZE(tables) && r == 0; i++)
		r = shard_again(s, &tables[i], reterr_diag);
	for (size_t i = 0; s->config.cluster && i < ARRAY_SIZE(span_tables) && r == 0; i++)
		r = shard_again(s, &span_tables[i], reterr_diag);
	return r;
}

static int fifth_version(struct ch *s, struct diag *reterr_diag)
{
	return create_table(s, &agents_table, reterr_diag);
}

static int sixth_version(struct ch *s, struct diag *reterr_diag)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(symbol_tables) && r == 0; i++)
		r = create_table(s, &symbol_tables[i], reterr_diag);
	return r;
}

/* Before, frames and functions of late symbols had a month of their own and were never dropped. */
static int seventh_version(struct ch *s, struct diag *reterr_diag)
{
	static const enum ch_table late[] = {CH_FRAMES, CH_FUNCTIONS};
	static const char *const names[] = {"frames", "functions"};
	u32 month = ch_day_of((u64)time(NULL) * 1000) / 100;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(late) && r == 0; i++) {
		_cleanup_str_ struct str sql = {}, cluster = {};

		r = ch_copy_to_month(s, late[i], month, "month = 999912", reterr_diag);
		str_printf(&sql, "ALTER TABLE %s%s%s DROP PARTITION 999912", names[i], ch_local(s),
			   ch_on_cluster(s, &cluster));
		if (r == 0)
			r = ch_select(s, str_get(&sql), NULL, reterr_diag);
	}
	return r;
}

/* steps[i] migrates version i to i + 1 and can be repeated after an interruption. */
static int (*const steps[SCHEMA_VERSION])(struct ch *, struct diag *) = {
	first_version, second_version, third_version,  fourth_version,
	fifth_version, sixth_version,  seventh_version};

static int migrate(struct ch *s, u64 version, struct diag *reterr_diag)
{
	int r = 0;

	if (version > SCHEMA_VERSION)
		return diag_set(reterr_diag, -EINVAL,
				"%s was written by a newer culprit (version %llu)", s->where,
				version);
	for (; version < SCHEMA_VERSION && r == 0; version++) {
		log_info("%s: migrating the tables to version %llu", s->where, version + 1);
		r = steps[version](s, reterr_diag);
		if (r == 0)
			r = add_version(s, (u32)version + 1, reterr_diag);
	}
	return r;
}

static int make_database(struct ch *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, cluster = {};
	u64 found = 0;
	int r;

	str_printf(&sql, "SELECT count() FROM system.databases WHERE name = '%s'",
		   s->config.database);
	r = select_number(s, str_get(&sql), true, &found, reterr_diag);
	/* In a cluster, a node may not have the table yet. */
	if (r < 0 || (found && !s->config.cluster))
		return r;
	str_clear(&sql);
	str_printf(&sql, "CREATE DATABASE IF NOT EXISTS `%s`%s", s->config.database,
		   ch_on_cluster(s, &cluster));
	return ch_run(s, &(struct ch_request){.sql = str_get(&sql), .no_database = true}, NULL,
		      reterr_diag);
}

/* Refuses a database that has foreign tables with the names of culprit's tables. */
static int check_foreign(struct ch *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {};
	u64 found = 0;
	int r;

	str_printf(&sql, "SELECT count() FROM system.tables WHERE database = '%s' AND name IN (",
		   s->config.database);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		str_printf(&sql, "%s'%s'", i ? ", " : "", tables[i].name);
	str_putc(&sql, ')');
	r = select_number(s, str_get(&sql), true, &found, reterr_diag);
	if (r == 0 && found)
		r = diag_set(reterr_diag, -EINVAL,
			     "%s has tables of another program: choose another database", s->where);
	return r;
}

int ch_schema(struct ch *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {};
	u64 found = 0, version = 0;
	int r = select_number(s,
			      "SELECT count() FROM system.settings WHERE name = "
			      "'insert_deduplication_token'",
			      true, &found, reterr_diag);

	if (r < 0)
		return r;
	s->modern = found;
	str_printf(&sql, "SELECT count() FROM system.tables WHERE database = '%s' AND name = '%s'",
		   s->config.database, version_table.name);
	r = select_number(s, str_get(&sql), true, &found, reterr_diag);
	if (r < 0)
		return r;
	if (!found) {
		r = make_database(s, reterr_diag);
		if (r == 0)
			r = check_foreign(s, reterr_diag);
		if (r == 0)
			r = create_table(s, &version_table, reterr_diag);
	}
	if (r == 0)
		r = select_number(s, "SELECT max(version) FROM culprit_schema", false, &version,
				  reterr_diag);
	return r < 0 ? r : migrate(s, version, reterr_diag);
}
