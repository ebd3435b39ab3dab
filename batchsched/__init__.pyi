from batchsched.api.decision import Decision as Decision
from batchsched.api.decision import refusal_text as refusal_text
from batchsched.api.snapshot import Snapshot as Snapshot
from batchsched.config.load import load_configuration as load_configuration
from batchsched.config.schema import Profile as Profile
from batchsched.python_api import ClusterInput as ClusterInput
from batchsched.python_api import explain as explain
from batchsched.python_api import read as read
from batchsched.session.session import decide as decide

__version__: str
