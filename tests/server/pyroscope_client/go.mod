// SPDX-License-Identifier: Apache-2.0
module culprit/tests/pyroscope_client

go 1.24

require github.com/grafana/pyroscope/api v1.6.0
