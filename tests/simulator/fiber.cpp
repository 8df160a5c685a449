// See fiber.h.
#include "tests/simulator/fiber.h"

#include <immintrin.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// simulator_switch(void** from, void* to): what a called function has to keep lies on the stack.
asm(R"(
.text
.globl simulator_switch
.type simulator_switch, @function
simulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simulator_switch, .-simulator_switch
)");
extern "C" void simulator_switch(void** from, void* to);

namespace tutti::simulator {
namespace {

constexpr std::size_t kStack = std::size_t{512} << 10, kParked = std::size_t{64} << 10;
constexpr unsigned long kFsgsbase = 2;  // HWCAP2_FSGSBASE

std::array<Seat, kSeats> seats;
std::atomic<std::size_t> parked{0};

void* park(void* own) {
  static_cast<Seat*>(own)->thread = _readfsbase_u64();
  parked.fetch_add(1);
  for (;;) {  // without errno, which belongs to whoever sits here
    long result = SYS_pause;
    asm volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
  }
}

}  // namespace

void make_seats() {
  if ((getauxval(AT_HWCAP2) & kFsgsbase) == 0) {
    std::fprintf(stderr, "simulator: this processor or kernel lacks FSGSBASE\n");
    std::exit(77);
  }
  // One mapping for all: a fork copies each.
  void* const all = mmap(nullptr, kSeats * (kStack + kParked), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) std::abort();
  auto* at = static_cast<std::byte*>(all);
  for (Seat& made : seats) {
    made.stack_end = at + kStack;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, at + kStack, kParked);
    pthread_t thread{};
    if (pthread_create(&thread, &attributes, park, &made) != 0) std::abort();
    pthread_attr_destroy(&attributes);
    at += kStack + kParked;
  }
  while (parked.load() < kSeats) usleep(100);
}

const Seat& seat(std::size_t number) { return seats[number]; }

Context begin_at(const Seat& seat, void (*entry)()) {
  // As simulator_switch() leaves it, with `entry` to return to; it finds the stack as after a call.
  auto* at = reinterpret_cast<std::uint64_t*>(seat.stack_end) - 1;
  *--at = reinterpret_cast<std::uint64_t>(entry);
  for (int i = 0; i < 6; ++i) *--at = 0;
  const std::uint32_t words[2] = {0x1f80, 0x037f};  // MXCSR and the x87 control word, as at start
  std::memcpy(--at, words, sizeof words);
  return {at, seat.thread};
}

void switch_to(Context& from, const Context& to) {
  from.thread = _readfsbase_u64();
  _writefsbase_u64(to.thread);
  simulator_switch(&from.stack, to.stack);
}

}  // namespace tutti::simulator
