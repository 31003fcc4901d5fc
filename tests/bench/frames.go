// SPDX-License-Identifier: Apache-2.0

// Burns CPU at the end of os.Args[1] frames.
package main

import (
	"os"
	"strconv"
)

var x uint32 = 1

//go:noinline
func leaf() {
	for i := uint32(0); ; i++ {
		x = (x*5 + i) & 0xffff
	}
}

//go:noinline
func level(n int) int {
	if n > 1 {
		level(n - 1)
	} else {
		leaf()
	}
	return n
}

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	level(n - 2)
}
