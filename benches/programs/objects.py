# Objects of many types, all of which are kept.
import collections, json

class Node:
    def __init__(self, number):
        self.number, self.next = number, None

def adder(number):
    return lambda: number

nodes = [Node(i) for i in range(5000)]
rows = [{"id": i, "name": "row %d" % i, "tags": [str(j) for j in range(i % 7)]} for i in range(5000)]
text = json.dumps(rows)
back = json.loads(text)
back.sort(key=lambda row: row["name"])
names = {str(i) for i in range(5000)}
data = [bytes(50) for i in range(2000)]
arrays = [bytearray(100) for i in range(500)]
floats = [i * 0.5 for i in range(5000)]
integers = [10**20 + i for i in range(2000)]
functions = [adder(i) for i in range(2000)]
generators = [(x for x in range(3)) for i in range(500)]
queue = collections.deque(range(20000))
ordered = collections.OrderedDict((i, i) for i in range(3000))
pairs = [(i, i) for i in range(4000)]
for i in range(100):
    exec(compile("def f%d(a, b=2):\n  return a + b\n" % i, "source", "exec"))
