// A user's program, built against an installed Tutti: a step of data parallelism, of one rank over
// a slow link.
#include <tutti/parallel/data_parallel/data_parallel.h>
#include <tutti/parallel/mesh.h>
#include <tutti/parallel/throttled_axis.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <utility>

int main() {
  auto world = std::move(tutti::Communicator::create_local(1).front());
  tutti::parallel::Mesh mesh(world, {{"dp", -1}});
  tutti::parallel::ThrottledAxis slow(mesh.axis("dp"), {.bytes_per_second = 1e9});
  tutti::parallel::DataParallel engine(slow, {{"w", {3}}});
  auto* const gradient = static_cast<float*>(engine.gradient(0));
  gradient[2] = 5;
  engine.ready(0);
  if (engine.finish() || gradient[2] != 5) return 1;
  std::puts("a step of data parallelism is right");
}
