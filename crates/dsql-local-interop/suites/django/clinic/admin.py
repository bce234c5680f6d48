from django.contrib import admin

from .models import Owner, Pet

admin.site.register([Owner, Pet])
