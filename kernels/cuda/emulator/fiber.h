// SPDX-License-Identifier: Apache-2.0

// A call stack that can be suspended and resumed, always on the same operating-system thread. Each
// thread of an emulated CUDA block is a fiber. Works only on x86-64, like kernels/simd.
#pragma once

#include <cstddef>

namespace lodestar::emulator {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next Resume() call `body(argument)`. If an earlier body has not ended, it never
  // continues, and its destructors do not run.
  void Start(void (*body)(void*), void* argument);
  // Runs the body until it calls Suspend() or ends. Returns true if the body has ended.
  bool Resume();
  // Returns control to the caller of Resume(). May be called only inside the body.
  void Suspend();

 private:
  static void Run(Fiber* fiber);
  friend void RunFiber(Fiber* fiber);

  char* stack_;
  void* own_stack_pointer_ = nullptr;
  void* caller_stack_pointer_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool ended_ = false;
};

}  // namespace lodestar::emulator
