# SPDX-License-Identifier: Apache-2.0
# Makes of an OTLP .proto file what protoc-c reads. Names in C are short: one package. Values that
# nest are bytes: whoever looks into one counts the levels, and unpacking a request needs no stack
# for them.
s/^package .*/package otlp;/
s/(opentelemetry\.proto\.)?(common|resource|profiles|trace)\.v1(development)?\.([A-Z])/\4/
s/\t(ArrayValue|KeyValueList) (array|kvlist)_value/\tbytes \2_value/
