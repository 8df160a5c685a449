// A user's program, built against an installed Tutti: a step of data parallelism, of one rank.
#include <tutti/parallel/data_parallel/data_parallel.h>
#include <tutti/parallel/mesh.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <utility>

int main() {
  auto world = std::move(tutti::Communicator::create_local(1).front());
  tutti::parallel::Mesh mesh(world, {{"dp", -1}});
  tutti::parallel::DataParallel engine(mesh.axis("dp"), {{"w", {3}}});
  auto* const gradient = static_cast<float*>(engine.gradient(0));
  gradient[2] = 5;
  engine.ready(0);
  if (engine.finish() || gradient[2] != 5) return 1;
  std::puts("a step of data parallelism is right");
}
