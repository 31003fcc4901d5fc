// SPDX-License-Identifier: Apache-2.0
module culprit/tests/pyroscope_sdk

go 1.24

require github.com/grafana/pyroscope-go v1.2.8
