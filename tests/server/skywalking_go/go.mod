// SPDX-License-Identifier: Apache-2.0
module culprit/tests/skywalking_go

go 1.25.0

require (
	google.golang.org/grpc v1.79.2
	google.golang.org/protobuf v1.36.11
)
