package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// memoryLimitVariable is the variable in which the Deployment hands over the container's memory limit, in bytes.
const memoryLimitVariable = "CONTAINER_MEMORY_LIMIT"

// heapShare is the share of the container's memory that the Go runtime may use, in percent. The rest is for what it does not count;
// https://go.dev/doc/gc-guide#Memory_limit advises 5 to 10 percent.
const heapShare = 90

// garbageShare is how much garbage there may be beside what lives, in percent; Go's own is 100. Where thousands of nodes report, memory is
// what gets tight first.
const garbageShare = 50

// limitMemory has the garbage collector work harder rather than have the kernel end the process. GOMEMLIMIT and GOGC, where they are set, win.
func limitMemory() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbageShare)
	}
	value := os.Getenv(memoryLimitVariable)
	if value == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(value, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("environment variable %s: %q: want a number of bytes above 0, or no such variable", memoryLimitVariable, value)
	}
	debug.SetMemoryLimit(limit / 100 * heapShare)
	return nil
}
