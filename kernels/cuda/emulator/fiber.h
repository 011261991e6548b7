// A call stack that can be left in the middle and resumed later, always on one operating-system
// thread: each thread of an emulated CUDA block is one. x86-64 only, as kernels/simd is.
#pragma once

#include <cstddef>

namespace lodestar::emulator {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume() begins `body(argument)`; a call that was under way is forgotten, without
  // running its destructors.
  void Start(void (*body)(void*), void* argument);
  // Runs until Suspend() or the end of the body. Returns whether the body has ended.
  bool Resume();
  // Only inside the body.
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
