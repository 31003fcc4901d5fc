/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent does with a parser that lies, hangs or ends. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "parser_fixture.h"

static struct fake_parser fake;

static void begin(void)
{
	fake_init(&fake, 200);
}

static void end(void)
{
	fake_deinit(&fake);
}

TestSuite(parser, .init = begin, .fini = end);

/* Two rows and two rules, all good. */
static struct parser_answer write_rows(void)
{
	fake.shared->rows[0] = 0;
	fake.shared->rows[1] = 16 << 16 | 1;
	fake.shared->rules[0] = (struct unwind_rule){.cfa_op = UNWIND_CFA_NONE};
	fake.shared->rules[1] = (struct unwind_rule){
		.cfa_op = UNWIND_CFA_REG, .cfa_reg = UNWIND_REG_SP, .cfa_off = 8, .ra_off = -8};
	return (struct parser_answer){.n_rows = 2, .n_rules = 2};
}

static int build(const struct parser_answer *a, u32 n_known, struct parser_page *ret)
{
	cr_assert_eq(message_send(fake.socket, PARSER_ANSWER, a, sizeof(*a), -1), 0);
	return parser_build(fake.parser, 1, 7, n_known, ret);
}

Test(parser, takes_a_good_answer)
{
	struct parser_answer a;
	struct parser_page p;

	fake_open(&fake, NULL, 0);
	a = write_rows();
	cr_assert_eq(build(&a, 0, &p), 0);
	cr_assert(p.n_rows == 2 && p.n_rules == 2);
	/* The parser may write what it likes afterwards. */
	memset(fake.shared, 0xff, sizeof(*fake.shared));
	cr_assert(p.rows[1] == (16 << 16 | 1) && p.rules[1].cfa_off == 8);
	/* Rows of old rules only. */
	(void)write_rows();
	a.n_rules = 0;
	cr_assert_eq(build(&a, 2, &p), 0);
	a.error = -ENOENT;
	cr_assert_eq(build(&a, 2, &p), -ENOENT);
	/* An error that means something else to the agent is not passed on. */
	a.error = -EPROTO;
	cr_assert_eq(build(&a, 2, &p), -EINVAL);
	a.error = 5;
	cr_assert_eq(build(&a, 2, &p), -EINVAL);
}

enum lie {
	NO_ROWS,
	MANY_ROWS,
	MANY_RULES,
	RULES_OVER_ALL,
	LATE_FIRST_ROW,
	SAME_OFFSET,
	FALLING,
	BEYOND_PAGE,
	RULE_OF_NOBODY,
	FIRST_RULE,
	CFA_OP,
	CFA_REG,
	RA_OP,
	FP_OP,
	N_LIES
};

/* Returns the number of rules that the agent has. */
static u32 tell(enum lie lie, struct parser_answer *a)
{
	struct parser_rows *s = fake.shared;

	*a = write_rows();
	switch (lie) {
	case NO_ROWS:
		a->n_rows = 0;
		break;
	case MANY_ROWS:
		a->n_rows = 0xffffffff;
		break;
	case MANY_RULES:
		a->n_rules = UNWIND_MAX_RULES + 1;
		break;
	case RULES_OVER_ALL:
		return UNWIND_MAX_RULES - 1;
	case LATE_FIRST_ROW:
		s->rows[0] = 1 << 16;
		break;
	case SAME_OFFSET:
		s->rows[1] = 1;
		break;
	case FALLING:
		s->rows[2] = 15 << 16;
		a->n_rows = 3;
		break;
	case BEYOND_PAGE:
		s->rows[1] = UNWIND_PAGE_BYTES << 16;
		break;
	case RULE_OF_NOBODY:
		s->rows[1] = 16 << 16 | 2;
		break;
	case FIRST_RULE:
		s->rules[0].cfa_op = UNWIND_CFA_REG;
		break;
	case CFA_OP:
		s->rules[1].cfa_op = UNWIND_CFA_GO + 1;
		break;
	case CFA_REG:
		s->rules[1].cfa_reg = 32;
		break;
	case RA_OP:
		s->rules[1].ra_op = UNWIND_RA_REG + 1;
		break;
	case FP_OP:
		s->rules[1].fp_op = UNWIND_FP_REG + 1;
		break;
	case N_LIES:
		break;
	}
	return 0;
}

Test(parser, ends_one_that_lies)
{
	for (u32 i = 0; i < N_LIES; i++) {
		struct parser_answer a;
		struct parser_page p;
		u32 n_known;

		fake_open(&fake, NULL, 0);
		n_known = tell((enum lie)i, &a);
		fake_expect_end(&fake);
		cr_assert_eq(build(&a, n_known, &p), -EPROTO, "lie %u", i);
		cr_assert_eq(parser_generation(fake.parser), 0);
		fake_forget(&fake);
	}
}

Test(parser, ends_one_that_speaks_otherwise)
{
	struct parser_page p;

	fake_open(&fake, NULL, 0);
	cr_assert_eq(message_send(fake.socket, PARSER_ANSWER, "x", 1, -1), 0);
	fake_expect_end(&fake);
	cr_assert_eq(parser_build(fake.parser, 1, 7, 0, &p), -EPROTO);
	fake_forget(&fake);
	fake_open(&fake, NULL, 0);
	cr_assert_eq(message_send(fake.socket, PARSER_PAGE, NULL, 0, -1), 0);
	fake_expect_end(&fake);
	cr_assert_eq(parser_build(fake.parser, 1, 7, 0, &p), -EPROTO);
}

Test(parser, waits_only_so_long)
{
	struct parser_page p;

	fake_open(&fake, NULL, 0);
	fake_expect_end(&fake);
	cr_assert_eq(parser_build(fake.parser, 1, 7, 0, &p), -ETIMEDOUT);
	fake_forget(&fake);
	/* Half an answer. */
	fake_open(&fake, NULL, 0);
	cr_assert_eq(write(fake.socket, "\10\0\0", 3), 3);
	fake_expect_end(&fake);
	cr_assert_eq(parser_build(fake.parser, 1, 7, 0, &p), -ETIMEDOUT);
}

/* Which file is to blame depends on whether it had been asked. */
Test(parser, knows_when_one_ended)
{
	struct parser_page p;

	fake_open(&fake, NULL, 0);
	cr_assert_eq(shutdown(fake.socket, SHUT_WR), 0);
	fake_expect_end(&fake);
	cr_assert_eq(parser_build(fake.parser, 1, 7, 0, &p), -EIO);
	fake_forget(&fake);
	fake_open(&fake, NULL, 0);
	fake_forget(&fake);
	fake_expect_end(&fake);
	cr_assert_eq(parser_build(fake.parser, 1, 7, 0, &p), -ESTALE);
	cr_assert_eq(parser_build(fake.parser, 1, 7, 0, &p), -ESTALE);
}

/* It would end the agent with SIGBUS. */
Test(parser, cannot_shrink_the_memory)
{
	_cleanup_str_ struct str data = {};
	char path[64];
	int fd = -1;
	u32 n = 0;

	fake_open(&fake, NULL, 0);
	for (int i = 3; i < 64; i++) {
		char name[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "memfd:rows")) {
			fd = i;
			n++;
		}
	}
	cr_assert_eq(n, 1);
	cr_assert_eq(ftruncate(fd, 0), -1);
	cr_assert_eq(errno, EPERM);
}
