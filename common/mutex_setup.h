// Settings of Abseil's mutexes for processes whose locks are fast only if nothing watches them.
#pragma once

namespace lodestar {

// Turns off the search for wrong lock orders. Debian's Abseil is built with it: every lock and
// unlock, also those of gRPC, then goes through one lock and one graph of the whole process. Tests
// keep it. Called once at the top of main(), before any thread.
void SetUpMutexes();

}  // namespace lodestar
