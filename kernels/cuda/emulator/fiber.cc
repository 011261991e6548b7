// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/emulator/fiber.h"

#include <sys/mman.h>

#include "common/runtime/check.h"

// Saves the stack pointer and the registers that a callee must preserve (System V ABI), and loads
// those of another stack. A new stack begins in LodestarFiberEntry, with the fiber in r12.
asm(R"(
.text
.type LodestarSwitchStack, @function
LodestarSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size LodestarSwitchStack, .-LodestarSwitchStack
.type LodestarFiberEntry, @function
LodestarFiberEntry:
  movq %r12, %rdi
  call LodestarFiberRun
  ud2
.size LodestarFiberEntry, .-LodestarFiberEntry
)");

extern "C" {
void LodestarSwitchStack(void** save, void* load);
void LodestarFiberEntry();
}

namespace lodestar::emulator {
namespace {

constexpr size_t kStackBytes = 256 * 1024;  // address space; pages take memory when touched
constexpr int kSavedRegisters = 6;
constexpr int kR12 = 3;  // index of r12 among the saved registers, which begin with r15

}  // namespace

void RunFiber(Fiber* fiber) { Fiber::Run(fiber); }

extern "C" __attribute__((used)) void LodestarFiberRun(Fiber* fiber) { RunFiber(fiber); }

Fiber::Fiber() {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LODESTAR_CHECK(memory != MAP_FAILED);
  stack_ = static_cast<char*>(memory);
}

Fiber::~Fiber() { munmap(stack_, kStackBytes); }

void Fiber::Start(void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  ended_ = false;
  // The new stack has the saved registers and the return address on top. They are placed so that
  // the stack is aligned for the call in LodestarFiberEntry.
  void** top = reinterpret_cast<void**>(stack_ + kStackBytes) - 1;
  top[0] = reinterpret_cast<void*>(&LodestarFiberEntry);
  void** registers = top - kSavedRegisters;
  for (int i = 0; i < kSavedRegisters; ++i) registers[i] = nullptr;
  registers[kR12] = this;
  own_stack_pointer_ = registers;
}

void Fiber::Run(Fiber* fiber) {
  fiber->body_(fiber->argument_);
  fiber->ended_ = true;
  fiber->Suspend();
}

bool Fiber::Resume() {
  LodestarSwitchStack(&caller_stack_pointer_, own_stack_pointer_);
  return ended_;
}

void Fiber::Suspend() { LodestarSwitchStack(&own_stack_pointer_, caller_stack_pointer_); }

}  // namespace lodestar::emulator
